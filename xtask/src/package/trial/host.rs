//! One fresh system: commands in it, and what the package does to it.

use super::Tally;
use crate::package::recipe;
use crate::project::{run, text_of};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What an installation brings, beside the pages of the commands.
const INSTALLED: [&str; 13] = [
    "usr/bin/farshore",
    "usr/lib/systemd/system/farshore.service",
    "usr/lib/systemd/system/farshore-primary@.service",
    "usr/lib/systemd/system/farshore-primary@.target",
    "usr/lib/systemd/system/resource-agents-deps.target.d/farshore.conf",
    "usr/lib/ocf/resource.d/farshore/farshore",
    "usr/lib/systemd/system-preset/50-farshore.preset",
    "etc/farshore/farshore.toml.example",
    "usr/share/doc/farshore/copyright",
    "usr/share/doc/farshore/third-party-licences.txt",
    "usr/share/bash-completion/completions/farshore",
    "usr/share/zsh/vendor-completions/_farshore",
    "usr/share/fish/vendor_completions.d/farshore.fish",
];
/// What is there only once somebody configured, enabled or started something.
const NOT_INSTALLED: [&str; 3] =
    ["etc/farshore/farshore.toml", "etc/systemd/system/multi-user.target.wants/farshore.service", "var/lib/farshore"];

pub struct TrialHost {
    /// As the configuration calls it.
    pub node: &'static str,
    pub root: PathBuf,
}

impl TrialHost {
    /// Mounts what programs expect, and gives the namespace the host's address.
    pub fn new(node: &'static str, root: &Path, address: &str) -> Result<TrialHost> {
        for (kind, place) in [("proc", "proc"), ("sysfs", "sys")] {
            run(Command::new("mount").args(["-t", kind, kind]).arg(root.join(place)))?;
        }
        run(Command::new("ip").args(["address", "add", &format!("{address}/32"), "dev", "lo"]))?;
        // The unit knows its node by the name of the host; debootstrap wrote this machine's.
        fs::write(root.join("etc/hostname"), format!("{node}\n"))?;
        Ok(TrialHost { node, root: root.to_path_buf() })
    }

    /// A command of this host, as somebody types it there.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.root).args(words).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/");
        command.env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Runs a command and returns what it says, on either output.
    ///
    /// # Errors
    /// When it fails.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        println!("{}# {}", self.node, words.join(" "));
        let output = self.command(words).output().with_context(|| format!("starting {} failed", words[0]))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        ensure!(output.status.success(), "{}: `{}` failed: {text}", self.node, words.join(" "));
        Ok(text)
    }

    /// Starts the daemon; its log goes beside the system's folder.
    pub fn serve(&self) -> Result<Child> {
        let log = fs::File::options().append(true).create(true).open(self.root.with_extension("log"))?;
        println!("{}# farshore serve --node {} &", self.node, self.node);
        let mut command = self.command(&["farshore", "serve", "--node", self.node]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().context("starting the daemon failed")
    }

    pub fn install(&self, package: &Path, tally: &mut Tally) -> Result<()> {
        let said = self.unpack(package)?;
        let has = |place: &&str| self.root.join(place).exists();
        let missing: Vec<&str> = INSTALLED.into_iter().filter(|place| !has(place)).collect();
        tally.expect(&self.of("every file is installed"), missing.is_empty(), &missing.join(", "))?;
        let unasked: Vec<&str> = NOT_INSTALLED.into_iter().filter(has).collect();
        let is_silent = unasked.is_empty() && said.contains("nothing was started");
        tally.expect(
            &self.of("nothing is configured, enabled or started"),
            is_silent,
            &(unasked.join(", ") + &said),
        )?;
        let version = self.run(&["farshore", "--version"])?;
        let wanted = concat!("farshore ", env!("CARGO_PKG_VERSION"));
        tally.expect(&self.of("the program runs"), version.trim() == wanted, &version)?;
        self.look_up_pages(tally)?;
        let complete = "source /usr/share/bash-completion/completions/farshore && complete -p farshore";
        let rule = self.run(&["bash", "-c", complete])?;
        tally.expect(&self.of("bash completes it"), rule.contains("-F _farshore"), &rule)
    }

    /// Follows the container's recipe here, and runs the program in what becomes the image.
    pub fn make_image(&self, tally: &mut Tally) -> Result<()> {
        for command in recipe::commands() {
            self.run(&["sh", "-c", command])?;
        }
        let image = TrialHost { node: "image", root: self.root.join(recipe::IMAGE) };
        let version = image.run(&["/usr/bin/farshore", "--version"])?;
        tally.expect("the program runs in the container's image", version.starts_with("farshore "), &version)?;
        let files = files_below(&image.root)?;
        let is_small = files.len() < 12 && !image.root.join("bin/sh").exists();
        tally.expect("the image holds little else", is_small, &format!("{files:?}"))
    }

    /// The pages are read by this machine's `man`, for a minimal system has none.
    fn look_up_pages(&self, tally: &mut Tally) -> Result<()> {
        let help = self.run(&["farshore", "help"])?;
        let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let commands = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        let commands: Vec<&str> = commands.filter(|name| !name.is_empty() && *name != "help").collect();
        let pages = self.root.join("usr/share/man");
        let page = |name: &str| pages.join(format!("man1/farshore-{name}.1.gz")).is_file();
        let missing: Vec<&str> = commands.iter().copied().filter(|name| !page(name)).collect();
        let holds = commands.len() > 10 && missing.is_empty();
        tally.expect(&self.of("each command has a page"), holds, &format!("{commands:?}, missing: {missing:?}"))?;
        if crate::suite::is_there("man") {
            let found = text_of(Command::new("man").arg("-M").arg(&pages).args(["-w", "farshore-sync"]))?;
            tally.expect(&self.of("man finds a page"), found.contains("farshore-sync.1"), &found)?;
        }
        Ok(())
    }

    /// Unpacks and configures the package, anew or over itself.
    pub fn unpack(&self, package: &Path) -> Result<String> {
        let inside = self.root.join("farshore.deb");
        fs::copy(package, inside)?;
        self.run(&["dpkg", "--install", "/farshore.deb"])
    }

    pub fn remove(&self, tally: &mut Tally) -> Result<()> {
        let state = self.root.join("var/lib/farshore");
        let before = files_below(&state)?;
        for verb in ["--remove", "--purge"] {
            let said = self.run(&["dpkg", verb, "farshore"])?;
            let is_told = said.contains("/var/lib/farshore") && said.contains("kept");
            tally.expect(&self.of(&format!("{verb} says where the state is")), is_told, &said)?;
        }
        let after = files_below(&state)?;
        let is_kept = !before.is_empty() && before == after;
        tally.expect(&self.of("the state is still there"), is_kept, &format!("{before:?}, then {after:?}"))?;
        let has = |place: &&str| self.root.join(place).exists();
        let left: Vec<&str> = INSTALLED.into_iter().filter(has).collect();
        tally.expect(&self.of("nothing of the package is left"), left.is_empty(), &left.join(", "))?;
        let kept = ["etc/farshore/farshore.toml", "etc/farshore/tls/ca.crt"];
        tally.expect(&self.of("configuration and certificates are kept"), kept.iter().all(has), &kept.join(", "))
    }

    pub fn of(&self, what: &str) -> String {
        format!("{}: {what}", self.node)
    }
}

/// Names and sizes, sorted.
fn files_below(folder: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {} failed", folder.display()))? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => files.extend(files_below(&entry.path())?),
            false => files.push((entry.path(), entry.metadata()?.len())),
        }
    }
    files.sort();
    Ok(files)
}
