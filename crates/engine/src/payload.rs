//! Names of bytes: the engine hands them on, and never looks inside.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

/// A shared, opaque name for payload bytes. The engine clones and drops it; only the host looks inside.
#[derive(Clone, Debug)]
pub struct Buf(Arc<dyn Any + Send + Sync>);

impl Buf {
    pub fn new<T: Any + Send + Sync>(inner: Arc<T>) -> Buf {
        Buf(inner)
    }

    /// The caller's own type back.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }

    /// A shared handle to the caller's own type.
    pub fn shared<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.clone().downcast().ok()
    }
}

/// A part of a [`Buf`].
#[derive(Clone, Debug)]
pub struct Slice {
    pub buf: Buf,
    pub start: u32,
    pub length: u32,
}

/// What to write.
#[derive(Clone, Debug)]
pub enum WriteBytes {
    /// Volume content.
    Payload(Slice),
    /// Bytes the engine made itself: superblocks, journal index blocks, bitmaps.
    Meta(Vec<u8>),
}

impl WriteBytes {
    pub fn length(&self) -> u64 {
        match self {
            WriteBytes::Payload(slice) => u64::from(slice.length),
            WriteBytes::Meta(bytes) => bytes.len() as u64,
        }
    }
}
