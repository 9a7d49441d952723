//! Names of nodes, groups, volumes and clusters: distinct types, one alphabet.

use std::fmt;

use crate::limits::NAME_BYTES_MAX;

/// Checks the common alphabet: `[a-z0-9][a-z0-9_.-]{0,63}`.
///
/// # Errors
/// A sentence: the name, what is wrong with it, what a name may be.
pub(super) fn check_name(kind: &str, text: &str) -> Result<(), String> {
    let mut characters = text.chars();
    let reason = match characters.next() {
        None => "it is empty".to_owned(),
        Some(first) if !(first.is_ascii_lowercase() || first.is_ascii_digit()) => {
            format!("it starts with {first:?}")
        }
        Some(_) if text.len() > NAME_BYTES_MAX => format!("it has {} characters", text.len()),
        Some(_) => {
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.-".contains(c);
            match characters.find(|c| !allowed(*c)) {
                None => return Ok(()),
                Some(other) => format!("it contains {other:?}"),
            }
        }
    };
    Err(format!(
        "{text:?} is not a {kind} name ({reason}); use a-z, 0-9, \"_\", \".\" and \"-\", start with a letter or digit, at most {NAME_BYTES_MAX} characters"
    ))
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// # Errors
            /// A sentence: what is wrong with the name and what a name may be.
            pub fn parse(text: &str) -> Result<Self, String> {
                check_name($kind, text)?;
                Ok(Self(text.to_owned()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// The cluster both nodes belong to; part of what peers prove to each other.
    ClusterName, "cluster"
);
name_type!(
    /// A node, as the file names it.
    NodeName, "node"
);
name_type!(
    /// A group of volumes with one write order.
    GroupName, "group"
);
name_type!(
    /// A volume inside its group.
    VolumeName, "volume"
);

name_type!(
    /// A hook that is told of events.
    HookName, "hook"
);

impl HookName {
    /// As [`NodeName::missing`].
    pub(super) fn missing() -> Self {
        Self(String::new())
    }

    pub(super) fn is_missing(&self) -> bool {
        self.0.is_empty()
    }
}

impl ClusterName {
    /// As [`NodeName::missing`].
    pub(super) fn missing() -> Self {
        Self(String::new())
    }
}

impl NodeName {
    /// Stands where the file has no usable name; a problem was recorded, so it never leaves the parser.
    pub(super) fn missing() -> Self {
        Self(String::new())
    }

    pub(super) fn is_missing(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet() {
        for good in ["a", "0", "db-1", "node.example.org", "a_b", &"x".repeat(64)] {
            assert!(NodeName::parse(good).is_ok(), "{good}");
        }
        for (bad, reason) in [
            ("", "it is empty"),
            ("Alpha", "it starts with 'A'"),
            ("-a", "it starts with '-'"),
            ("aB", "it contains 'B'"),
            ("a b", "it contains ' '"),
            ("a/b", "it contains '/'"),
            ("aé", "it contains 'é'"),
            (&"x".repeat(65), "it has 65 characters"),
        ] {
            let error = GroupName::parse(bad).expect_err(bad);
            assert!(error.contains(reason) && error.contains("group name"), "{error}");
        }
    }
}
