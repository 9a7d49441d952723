#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farshore_fuzz::run("marks_cell", bytes));
