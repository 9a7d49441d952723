//! Tables of bytes: a row is a field of a sample, its words, and what the sample must hold there.

/// What a field of the sample must hold.
enum FieldHolds {
    Number(u64),
    Bytes(Vec<u8>),
}

/// A row. Its offset is where the row before ends.
pub struct Field {
    name: String,
    size: usize,
    holds: FieldHolds,
    content: String,
}

/// A number of so many bytes.
pub fn number(name: impl Into<String>, size: usize, value: u64, content: impl Into<String>) -> Field {
    Field { name: name.into(), size, holds: FieldHolds::Number(value), content: content.into() }
}

pub fn bytes(name: &str, value: Vec<u8>, content: impl Into<String>) -> Field {
    Field { name: name.to_owned(), size: value.len(), holds: FieldHolds::Bytes(value), content: content.into() }
}

/// A magic word, which readers are shown, or told about.
pub fn magic(word: &str, content: impl Into<String>) -> Field {
    bytes("magic", word.as_bytes().to_vec(), content)
}

pub fn zero(size: usize, content: &str) -> Field {
    bytes("zero", vec![0; size], content)
}

/// CRC-32C of everything before the last four bytes.
pub fn checksum(sample: &[u8], content: &str) -> Field {
    number("checksum", 4, crc32c::crc32c(&sample[..sample.len() - 4]).into(), content)
}

/// The four fields of a position that begins with this number and counts up.
pub fn position(of: &str, base: u64, contents: [&str; 4]) -> [Field; 4] {
    let names = ["generation number", "generation tag", "incarnation", "seq"];
    let name = |name: &str| format!("{of} {name}").trim_start().to_owned();
    [0, 1, 2, 3].map(|at| number(name(names[at]), 8, base + at as u64, contents[at]))
}

/// A list such as "0 `sync`, 1 `nearsync`": what each byte at a place of a sample is read as, unless it is refused. `read` gives
/// the word, and what was read as it is written again.
pub fn values(sample: &[u8], at: usize, read: impl Fn(&[u8]) -> Option<(String, Vec<u8>)>) -> String {
    listed(sample, at, 0..=u8::MAX, read).join(", ")
}

/// A list such as "1 failed; 2 handed over": what each bit alone at a place of a sample is read as, unless it is refused.
pub fn flags(sample: &[u8], at: usize, read: impl Fn(&[u8]) -> Option<(String, Vec<u8>)>) -> String {
    listed(sample, at, (0..8).map(|bit| 1_u8 << bit), read).join("; ")
}

fn listed(
    sample: &[u8],
    at: usize,
    bytes: impl Iterator<Item = u8>,
    read: impl Fn(&[u8]) -> Option<(String, Vec<u8>)>,
) -> Vec<String> {
    let mut list: Vec<(u8, String)> = Vec::new();
    for byte in bytes {
        let mut changed = sample.to_vec();
        changed[at] = byte;
        if let Some((word, written)) = read(&changed) {
            assert_eq!(written[at], byte, "{word:?} is read from {byte} at {at}, and written otherwise");
            assert!(
                list.iter().all(|(_, known)| *known != word),
                "two bytes at {at} are read as {word:?}: another field?"
            );
            list.push((byte, word));
        }
    }
    assert!(!list.is_empty(), "nothing is read at {at}");
    list.into_iter().map(|(byte, word)| format!("{byte} {word}")).collect()
}

/// The meaning of the one flag that is set.
pub fn flag_of<const N: usize>(flags: [(bool, &str); N]) -> String {
    let mut set = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, meaning)| meaning);
    let (meaning, second) = (set.next(), set.next());
    assert_eq!(second, None, "one bit sets two flags");
    meaning.expect("a bit that sets no flag is refused").to_owned()
}

/// With the checksum that its content has now.
pub fn resealed(mut image: Vec<u8>) -> Vec<u8> {
    let end = image.len() - 4;
    let checksum = crc32c::crc32c(&image[..end]);
    image[end..].copy_from_slice(&checksum.to_le_bytes());
    image
}

/// The table for readers, after each row was found in the sample, and no byte beside the rows.
pub fn table(what: &str, sample: &[u8], fields: impl IntoIterator<Item = Field>) -> String {
    let mut table = "| Offset | Size | Field | Content |\n|---|---|---|---|\n".to_owned();
    let mut offset = 0;
    for Field { name, size, holds, content } in fields {
        let end = offset + size;
        let found = sample.get(offset..end).unwrap_or_else(|| panic!("{what}: {name:?} lies past the sample's end"));
        let wanted = match holds {
            FieldHolds::Number(number) => number.to_le_bytes()[..size.min(8)].to_vec(),
            FieldHolds::Bytes(bytes) => bytes,
        };
        assert_eq!(found, wanted, "{what}: {name:?} at {offset}..{end}");
        table += &format!("| {offset} | {size} | {name} | {content} |\n").replace("|  |", "| |");
        offset = end;
    }
    assert_eq!(offset, sample.len(), "{what}: the rows end at {offset}");
    table
}
