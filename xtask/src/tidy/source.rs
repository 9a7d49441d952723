//! A Rust file with everything that is not code blanked out.
//!
//! Line and column stay: each byte of a comment or literal becomes a space, line ends excepted. So
//! a rule can look for words and braces without a parser.

pub struct SourceFile<'a> {
    pub path: &'a str,
    /// As long as the file.
    pub code: String,
    /// Lines before the module of unit tests at the foot, or all.
    pub lines_before_tests: usize,
}

impl<'a> SourceFile<'a> {
    pub fn new(path: &'a str, text: &str) -> SourceFile<'a> {
        let code = blank(text);
        let lines_before_tests = lines_before_tests(&code);
        SourceFile { path, code, lines_before_tests }
    }

    /// The line, from 1, of a byte.
    pub fn line_of(&self, at: usize) -> usize {
        self.code.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    /// Where a word stands in the code: not as part of a longer one.
    pub fn word_starts(&self, word: &str) -> Vec<usize> {
        let code = self.code.as_bytes();
        let is_bound = |at: Option<usize>| at.and_then(|at| code.get(at)).is_none_or(|&byte| !is_word_byte(byte));
        self.code
            .match_indices(word)
            .map(|(at, _)| at)
            .filter(|&at| is_bound(at.checked_sub(1)) && is_bound(Some(at + word.len())))
            .collect()
    }
}

pub fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// The tests at the foot are an inline module; `mod tests;` elsewhere ends nothing.
fn lines_before_tests(code: &str) -> usize {
    let lines: Vec<&str> = code.lines().collect();
    let is_foot =
        |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].contains("mod ") && pair[1].trim_end().ends_with('{');
    lines.windows(2).position(is_foot).unwrap_or(lines.len())
}

fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = end_of_non_code(bytes, at);
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(code).expect("only whole literals and comments were blanked")
}

/// Where the comment or literal that starts here ends; `at` itself if none does.
fn end_of_non_code(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let is_in_word = at > 0 && is_word_byte(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => at + block_comment_bytes(rest),
        [b'"', ..] => at + string_bytes(rest),
        [b'r' | b'b' | b'c', ..] if !is_in_word => {
            let prefix = rest.iter().take(2).take_while(|byte| matches!(byte, b'r' | b'b' | b'c')).count();
            let is_raw = rest[..prefix].contains(&b'r');
            match rest.get(prefix) {
                Some(b'"') if !is_raw => at + prefix + string_bytes(&rest[prefix..]),
                Some(b'"' | b'#') if is_raw => {
                    raw_string_bytes(&rest[prefix..]).map_or(at, |bytes| at + prefix + bytes)
                }
                _ => at,
            }
        }
        [b'\'', ..] => at + character_bytes(rest),
        _ => at,
    }
}

fn block_comment_bytes(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string_bytes(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// From the hashes or quote behind the `r`; `None` for a raw identifier such as `r#type`.
fn raw_string_bytes(rest: &[u8]) -> Option<usize> {
    let hashes = rest.iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &rest[hashes + 1..];
    let end = body.windows(close.len()).position(|window| window == close.as_slice());
    Some(end.map_or(rest.len(), |end| hashes + 1 + end + close.len()))
}

/// A character literal, or nothing if the quote starts a lifetime.
fn character_bytes(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let end = rest.iter().skip(3).position(|&byte| byte == b'\'');
        return end.map_or(0, |end| end + 4);
    }
    // One character of up to four bytes between quotes; `'a` without the second is a lifetime.
    let character_len = match rest.get(1) {
        Some(byte) if byte.is_ascii() => 1,
        Some(byte) => byte.leading_ones() as usize,
        None => return 0,
    };
    if rest.get(1 + character_len) == Some(&b'\'') { character_len + 2 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(text: &str) -> String {
        let code = SourceFile::new("x.rs", text).code;
        assert_eq!(code.len(), text.len());
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn blanks_comments_and_literals_only() {
        assert_eq!(code_of("a // {\nb /* { /* } */ { */ c"), "a b c");
        assert_eq!(code_of(r#"f("{ \" {", b"{", c"{") + '{' + '\'' + '\u{7b}' + b'{'"#), "f( , , ) + + + + b");
        assert_eq!(code_of("r#\"{ \" {\"# + br\"{\\\" + r#type"), "+ + r#type");
        assert_eq!(code_of("fn f<'a>(x: &'a str) {} // it's"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(code_of("'ä' 'a' \"ü{\""), "");
    }

    #[test]
    fn words_stand_alone() {
        let source = SourceFile::new("x.rs", "unsafe_code unsafe {} not_unsafe // unsafe\nunsafe");
        let lines: Vec<usize> = source.word_starts("unsafe").iter().map(|&at| source.line_of(at)).collect();
        assert_eq!(lines, [1, 2]);
    }

    #[test]
    fn only_an_inline_module_of_tests_ends_the_code() {
        let foot = "fn a() {}\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(SourceFile::new("x.rs", foot).lines_before_tests, 1);
        let elsewhere = "#[cfg(test)]\nmod tests;\nfn a() {}\n";
        assert_eq!(SourceFile::new("x.rs", elsewhere).lines_before_tests, 3);
    }
}
