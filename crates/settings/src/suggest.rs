//! "Did you mean": the nearest known word to a mistyped one.

use crate::limits::NAME_BYTES_MAX;

/// The candidate within a third of the word's letters, if any.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > NAME_BYTES_MAX {
        return None;
    }
    let reach = ((word.chars().count() + 1) / 3).clamp(1, 3);
    let lower = word.to_ascii_lowercase().replace('-', "_");
    candidates
        .into_iter()
        .map(|candidate| (distance(&lower, candidate), candidate))
        .filter(|(far, _)| *far <= reach)
        .min()
        .map(|(_, candidate)| candidate)
}

/// ` (did you mean "x"?)` or nothing; appended to a sentence about an unknown word.
pub fn hint<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map(|found| format!(" (did you mean {found:?}?)")).unwrap_or_default()
}

/// `"a", "b" and "c"`, for sentences that list what exists.
pub fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut words: Vec<String> = words.into_iter().map(|word| format!("{word:?}")).collect();
    // A group both of whose sides are one node names it twice.
    let mut named = std::collections::BTreeSet::new();
    words.retain(|word| named.insert(word.clone()));
    match words.split_last() {
        None => "none".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// Edits (insert, delete, replace, swap of neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let keys = ["primary", "secondary", "wait_limit", "mode"];
        assert_eq!(nearest("primry", keys), Some("primary"));
        assert_eq!(nearest("wait-limit", keys), Some("wait_limit"));
        assert_eq!(nearest("Mode", keys), Some("mode"));
        assert_eq!(nearest("mdoe", keys), Some("mode"));
        assert_eq!(nearest("color", keys), None);
        assert_eq!(list(["a", "b", "c"]), "\"a\", \"b\" and \"c\"");
        assert_eq!(list(["alpha", "mode", "alpha"]), "\"alpha\" and \"mode\"", "each once");
        assert_eq!(list([]), "none");
    }
}
