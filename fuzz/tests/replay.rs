//! Every corpus file, and thousands of seeded variations of it, through its target: on a stable compiler, in seconds.

use std::fs;
use std::path::PathBuf;

use farshore_fuzz::{Mutator, TARGETS};

/// Variations for each target.
const VARIATIONS: usize = 10_000;

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// A target's committed inputs, sorted by name so that every run is the same.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder(target)).unwrap_or_else(|error| panic!("no corpus for {target}: {error}"));
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("a folder can be listed").path();
            let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
            (name, fs::read(path).expect("a corpus file can be read"))
        })
        .collect();
    files.sort();
    files
}

#[test]
fn committed_seeds_are_the_generated_ones() {
    let write = std::env::var_os("FARSHORE_WRITE_CORPUS").is_some();
    for target in TARGETS {
        for (name, bytes) in (target.seeds)() {
            let path = folder(target.name).join(format!("seed_{name}"));
            if write {
                fs::create_dir_all(folder(target.name)).unwrap();
                fs::write(&path, &bytes).unwrap();
            }
            let committed = fs::read(&path).unwrap_or_default();
            assert!(
                committed == bytes,
                "{} differs from what its generator makes: the format changed? \
                 FARSHORE_WRITE_CORPUS=1 cargo test -p farshore-fuzz writes it anew",
                path.display()
            );
        }
    }
}

// proves: P10
#[test]
fn corpus_and_variations_pass_every_target() {
    for target in TARGETS {
        let files = corpus(target.name);
        assert!(!files.is_empty(), "{} has an empty corpus", target.name);
        for (name, bytes) in &files {
            println!("{}/{name}", target.name);
            (target.run)(bytes);
        }
        let mut mutator =
            Mutator::new(target.name.bytes().fold(1, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(byte)));
        for n in 0..VARIATIONS {
            let seed = &files[n % files.len()].1;
            let other = &files[mutator.below(files.len())].1;
            let bytes = mutator.mutate(seed, other);
            // A panic names the input that caused it: keep that as a corpus file.
            let input = Named { target: target.name, n, bytes };
            (target.run)(&input.bytes);
        }
    }
}

/// Prints the input when the target panics on it.
struct Named {
    target: &'static str,
    n: usize,
    bytes: Vec<u8>,
}

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("{} fails on variation {}: {hex}", self.target, self.n);
        }
    }
}
