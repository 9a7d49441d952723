//! Tools of others, built from source at a pinned version: a new one may know new complaints, and CI should not turn red by itself.

use crate::project::{Project, run};
use anyhow::{Result, ensure};
use std::process::Command;

pub struct PinnedTool {
    name: &'static str,
    version: &'static str,
    /// What `cargo install` is told besides.
    features: &'static [&'static str],
}

pub const CARGO_DEB: PinnedTool = PinnedTool { name: "cargo-deb", version: "3.8.0", features: &[] };
pub const CARGO_DENY: PinnedTool = PinnedTool { name: "cargo-deny", version: "0.20.2", features: &[] };
pub const CARGO_GENERATE_RPM: PinnedTool = PinnedTool { name: "cargo-generate-rpm", version: "0.21.1", features: &[] };
pub const MDBOOK: PinnedTool =
    PinnedTool { name: "mdbook", version: "0.5.4", features: &["--no-default-features", "--features", "search"] };

impl PinnedTool {
    /// The program to start: the machine's own where that has the wanted version.
    pub fn install(&self, project: &Project) -> Result<String> {
        let (name, version) = (self.name, self.version);
        let home = project.target.join(format!("tools/{name}-{version}"));
        let ours = home.join("bin").join(name).to_string_lossy().into_owned();
        if self.is_wanted(name) {
            return Ok(name.to_owned());
        }
        if !self.is_wanted(&ours) {
            // Once per target folder, and not optimised: a minute on two cores instead of four, for work of two seconds. What the tools
            // have in common is built once.
            let mut install = project.command("cargo");
            install.args(["install", "--debug", "--locked", name, "--version", version, "--root"]).arg(home);
            install.arg("--target-dir").arg(project.target.join("tools/build"));
            install.args(["--config", "profile.dev.debug=false"]).args(self.features);
            run(&mut install)?;
            ensure!(self.is_wanted(&ours), "installing {name} {version} failed; see above");
        }
        Ok(ours)
    }

    fn is_wanted(&self, program: &str) -> bool {
        let Ok(output) = Command::new(program).arg("--version").output() else {
            return false;
        };
        let line = String::from_utf8_lossy(&output.stdout);
        line.split_whitespace().nth(1).is_some_and(|word| word.trim_start_matches('v') == self.version)
    }
}
