//! Quantities for eyes.

use units::quantities::{Bytes, Seconds, show_bytes, show_time};

pub fn time(seconds: f64) -> String {
    show_time(Seconds(seconds))
}

pub fn size(bytes: u64) -> String {
    show_bytes(Bytes(bytes))
}

pub fn speed(mbit: u32) -> String {
    if mbit >= 1000 && mbit.is_multiple_of(500) {
        format!("{} Gbit/s", f64::from(mbit) / 1000.0)
    } else {
        format!("{mbit} Mbit/s")
    }
}
