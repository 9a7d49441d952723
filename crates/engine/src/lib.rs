//! The pure half of Farshore.
