//! Manual pages and completions, made from the command line itself: `pages FOLDER`. `cargo xtask package` ships them.
//!
//! An example, so that the program itself carries none of this.

use std::fs;
use std::io::{self, Error};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use farshore::args::Args;

/// Shells, and where each looks for completions of packages, below `/usr/share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/farshore"),
    (Shell::Zsh, "zsh/vendor-completions/_farshore"),
    (Shell::Fish, "fish/vendor_completions.d/farshore.fish"),
];

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).ok_or_else(|| Error::other("usage: pages FOLDER"))?;
    write_pages(Path::new(&folder))
}

/// Writes one manual page per command and one completion per shell, as they stand below `/usr/share`.
///
/// # Errors
/// When the folder cannot be written.
pub fn write_pages(folder: &Path) -> io::Result<()> {
    let manual = folder.join("man/man1");
    fs::create_dir_all(&manual)?;
    clap_mangen::generate_to(Args::command(), &manual)?;
    for (shell, place) in SHELLS {
        let file = folder.join(place);
        fs::create_dir_all(file.parent().expect("a place is below a folder"))?;
        clap_complete::generate(shell, &mut Args::command(), "farshore", &mut fs::File::create(file)?);
    }
    Ok(())
}
