//! One read over NBD, from nothing: what shows that an export serves again. A program started for it would take longer
//! than what is measured.

use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
/// Fixed newstyle, and no padding behind an old way to enter.
const CLIENT_FLAGS: u32 = 3;
const ENTER: u32 = 7;
const ENTERED: u32 = 1;
const REFUSED: u32 = 1 << 31;
const READ: u16 = 0;
/// Longer answers to the wish to enter are not ours.
const ANSWER_BYTES_MAX: u32 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(10);
pub const READ_BYTES: u32 = 4096;

/// Reads [`READ_BYTES`] of an export at `offset`.
///
/// # Errors
/// Nobody listens, the export is closed, or the read fails.
pub fn read(socket: &Path, export: &str, offset: u64) -> Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    enter(&mut stream, export)?;
    let request = [
        &REQUEST.to_be_bytes()[..],
        &[0; 2],
        &READ.to_be_bytes(),
        &[0; 8],
        &offset.to_be_bytes(),
        &READ_BYTES.to_be_bytes(),
    ];
    stream.write_all(&request.concat())?;
    ensure!(number(&mut stream)? == SIMPLE_REPLY, "the reply to a read makes no sense");
    let error = number(&mut stream)?;
    ensure!(error == 0, "the read failed with error {error}");
    let mut bytes = vec![0; 8 + READ_BYTES as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes.split_off(8))
}

fn enter(stream: &mut UnixStream, export: &str) -> Result<()> {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    let is_known = greeting[..8] == GREETING.to_be_bytes() && greeting[8..16] == OPTION.to_be_bytes();
    ensure!(is_known, "what listens there does not speak NBD");
    let name = u32::try_from(export.len()).context("the export's name")?;
    let length = 4 + name + 2;
    let words = [
        &CLIENT_FLAGS.to_be_bytes()[..],
        &OPTION.to_be_bytes(),
        &ENTER.to_be_bytes(),
        &length.to_be_bytes(),
        &name.to_be_bytes(),
        export.as_bytes(),
        &[0; 2],
    ];
    stream.write_all(&words.concat())?;
    loop {
        let mut magic = [0; 8];
        stream.read_exact(&mut magic)?;
        ensure!(magic == OPTION_REPLY.to_be_bytes(), "the answer to entering makes no sense");
        let [_, kind, length] = [number(stream)?, number(stream)?, number(stream)?];
        ensure!(length <= ANSWER_BYTES_MAX, "the answer to entering has {length} bytes");
        let mut text = vec![0; length as usize];
        stream.read_exact(&mut text)?;
        match kind {
            ENTERED => return Ok(()),
            refused if refused & REFUSED != 0 => bail!("refused: {}", String::from_utf8_lossy(&text)),
            _ => {}
        }
    }
}

fn number(stream: &mut UnixStream) -> Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}
