//! The secret that a cluster shares, and what is proven with it.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::{constant_time, hmac};

pub(in crate::link) const MAC_BYTES: usize = 32;

/// The secret that all nodes of a cluster share. Never printed.
#[derive(Clone)]
pub struct ClusterSecret(Arc<[u8]>);

impl ClusterSecret {
    /// The caller has checked length and file mode.
    pub fn new(bytes: &[u8]) -> ClusterSecret {
        assert!(!bytes.is_empty(), "an empty secret keeps nobody out");
        ClusterSecret(bytes.into())
    }

    /// HMAC-SHA256 over a label and parts, each preceded by its length so that no two inputs look alike.
    pub(super) fn mac(&self, label: &str, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        keyed(&self.0, label, parts)
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret")
    }
}

pub(in crate::link) fn keyed(key: &[u8], label: &str, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in [&[label.as_bytes()], parts].concat() {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

pub(in crate::link) fn same(ours: &[u8; MAC_BYTES], theirs: &[u8; MAC_BYTES]) -> bool {
    constant_time::verify_slices_are_equal(ours, theirs).is_ok()
}
