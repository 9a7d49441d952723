//! Lists of sentences in answers, which may come from another machine.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error, SeqAccess, Visitor};

/// Sentences of one list: more are no list for people. An empty text takes eight times the room of its line's bytes.
pub(super) const SENTENCES_MAX: usize = 16_384;

/// A list of sentences, of bounded length.
pub(super) fn sentences<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct Sentences;

    impl<'de> Visitor<'de> for Sentences {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {SENTENCES_MAX} texts")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
            let mut texts = Vec::new();
            while let Some(text) = list.next_element()? {
                if texts.len() == SENTENCES_MAX {
                    return Err(A::Error::invalid_length(SENTENCES_MAX + 1, &self));
                }
                texts.push(text);
            }
            Ok(texts)
        }
    }

    deserializer.deserialize_seq(Sentences)
}
