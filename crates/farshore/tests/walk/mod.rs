//! The pages of tutorial and how-to, walked: each command is typed as it stands there, on two hosts made for the page, and what a
//! page shows of an answer is what was answered. `BLESS=1` writes the shown answers anew.
//!
//! Here, and not a step of `cargo xtask test`, because the program just built is at hand, and the definition of its command line:
//! [`typed`] reads all pages by it. `page.rs` says which comments of a page lead the walk.

mod host;
mod page;
mod recording;
mod runners;
mod typed;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use host::{Ground, Step, Way};
use page::{Block, HOSTS, Page, Said, root};
use recording::Shown;
use runners::Who;

/// A test for each page on which something is typed.
macro_rules! walks {
    ($($name:ident: $page:literal,)*) => {
        const WALKED: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $name() {
                walk($page);
            }
        )*
    };
}

walks! {
    quickstart: "quickstart.md",
    toolkit: "toolkit.md",
    planner: "planner.md",
    doctor: "doctor.md",
    service: "operate/service.md",
    upgrade: "operate/upgrade.md",
    uninstall: "operate/uninstall.md",
    pacemaker: "operate/pacemaker.md",
    libvirt: "operate/libvirt.md",
    iscsi_nvmeof: "operate/iscsi-nvmeof.md",
    monitoring: "operate/monitoring.md",
    fail_over: "operate/fail-over.md",
    fail_back: "operate/fail-back.md",
    old_primary_returns: "operate/old-primary-returns.md",
    group_not_opened: "operate/group-not-opened.md",
    replace_a_disk: "operate/replace-a-disk.md",
    another_device: "operate/another-device.md",
    replace_a_node: "operate/replace-a-node.md",
    after_a_power_loss: "operate/after-a-power-loss.md",
    lost_link: "operate/lost-link.md",
    copy_lags: "operate/copy-lags.md",
    writers_are_slow: "operate/writers-are-slow.md",
    full_queue_and_journal: "operate/full-queue-and-journal.md",
    verify: "operate/verify.md",
    bulk_load: "operate/bulk-load.md",
    dead_disk: "operate/dead-disk.md",
    reverse_sync: "operate/reverse-sync.md",
    add_a_volume: "operate/add-a-volume.md",
    certificates: "operate/certificates.md",
    cli: "cli.md",
}

/// Reference that shows what was answered.
const ALSO_WALKED: [&str; 1] = ["cli.md"];

/// What of a page is typed here, in its order.
#[derive(Default)]
struct Walk {
    steps: Vec<Step>,
    /// By lines of the page: what has to be shown there, and which command of which step prints it.
    shown: Vec<(Shown, usize, usize)>,
}

fn walk(name: &str) {
    if host::cannot_walk(&format!("the walk of docs/book/{name}")) {
        return;
    }
    let page = Page::open(name);
    let Walk { steps, shown } = Walk::of(&page);
    let ground = Ground::new(&std::env::temp_dir());
    let said = host::walk(ground.path(), &steps);
    for (step, said) in steps.iter().zip(&said) {
        let typed: Vec<&str> = step.commands.iter().map(|(command, _)| command.as_str()).collect();
        let logs = || host::logs(ground.path());
        assert!(
            host::is_done(said),
            "docs/book/{name}:{}: on {} this was typed:\n{}\nand answered:\n{said}\n{}",
            step.line,
            step.host,
            typed.join("\n"),
            logs()
        );
    }
    let printed = shown.into_iter().map(|(shown, step, command)| {
        let printed = host::printed(&said[step], command).expect("the step is done").to_owned();
        Shown { printed, ..shown }
    });
    let wrong = recording::compare(&page, &printed.collect::<Vec<_>>());
    assert!(wrong.is_empty(), "{}BLESS=1 writes it anew", wrong.join("\n"));
}

impl Walk {
    fn of(page: &Page) -> Walk {
        let mut walk = Walk::default();
        for part in &page.parts {
            match &part.what {
                Said::Begin(situation) => {
                    // Hosts are new at first.
                    let anew = (!walk.steps.is_empty()).then(|| "anew".to_owned());
                    let commands = anew.into_iter().chain((!situation.is_empty()).then(|| situation.clone()));
                    walk.add(part.line, "alpha", Way::Aside, commands.map(succeeding).collect());
                }
                Said::Aside { host, command } => {
                    walk.add(part.line, host, Way::Aside, vec![succeeding(command.clone())]);
                }
                Said::Typed(block) => walk.add_block(part.line, block),
                Said::Output(output) => {
                    let step = walk.steps.len().checked_sub(1).expect("something was typed before its output");
                    let command = walk.steps[step].commands.len() - 1;
                    let (lines, recording) = (output.shown.clone(), output.recording);
                    let shown = Shown { lines, recording, is_part: false, printed: String::new() };
                    walk.shown.push((shown, step, command));
                }
            }
        }
        walk
    }

    fn add(&mut self, line: usize, host: &str, way: Way, commands: Vec<(String, String)>) {
        if !commands.is_empty() {
            self.steps.push(Step { line, host: host.to_owned(), way, commands });
        }
    }

    /// What of a block is typed here, on each host that its mark names.
    fn add_block(&mut self, line: usize, block: &Block) {
        let here: Vec<_> = block.commands.iter().filter(|command| runners::who(block, command).is_none()).collect();
        let way = if block.mark.goes_on { Way::Meanwhile } else { Way::Typed };
        for host in &block.mark.hosts {
            let commands = here
                .iter()
                .enumerate()
                .map(|(number, command)| (block.meant(&command.text), block.mark.code(number, here.len()).to_owned()));
            self.add(line, host, way, commands.collect());
        }
        let Some(recording) = block.recording else { return };
        let step = self.steps.len() - 1;
        let shown = here.iter().enumerate().map(|(number, command)| {
            let lines = command.shown.clone();
            (Shown { lines, recording, is_part: true, printed: String::new() }, step, number)
        });
        self.shown.extend(shown);
    }
}

fn succeeding(command: String) -> (String, String) {
    (command, "0".to_owned())
}

/// The pages of tutorial and how-to, as the contents name them.
fn taught() -> Vec<String> {
    let contents = fs::read_to_string(root().join("docs/book/SUMMARY.md")).expect("the contents");
    let mut part = "";
    let mut pages = Vec::new();
    for line in contents.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            part = title;
        } else if let Some((_, link)) = line.split_once("](").filter(|_| ["Tutorial", "How to"].contains(&part)) {
            pages.push(link.trim_end_matches(')').to_owned());
        }
    }
    pages
}

/// Each command of tutorial and how-to is typed by this walk, or by somebody who does, or it is said why nobody does.
#[test]
fn each_command_of_tutorial_and_how_to_is_typed() {
    let names = taught().into_iter().chain(ALSO_WALKED.map(str::to_owned));
    let pages: Vec<Page> = names.map(|name| Page::open(&name)).collect();
    let wrong = runners::wrong(&pages);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let (mut here, mut elsewhere, mut walked) = (0, BTreeMap::<String, usize>::new(), BTreeSet::new());
    for page in &pages {
        for block in page.blocks() {
            for command in &block.commands {
                match runners::who(block, command) {
                    None => {
                        here += 1;
                        walked.insert(page.name.as_str());
                    }
                    Some(Who::Other(runner)) => *elsewhere.entry(format!("by {}", runner.command)).or_insert(0) += 1,
                    Some(Who::Nobody(why)) => *elsewhere.entry(format!("by nobody: {why}")).or_insert(0) += 1,
                }
            }
        }
        if page.parts.iter().any(|part| matches!(part.what, Said::Output(_))) {
            walked.insert(&page.name);
        }
    }
    let count = here + elsewhere.values().sum::<usize>();
    println!("{count} commands of {} pages: {here} typed here", pages.len());
    elsewhere.iter().for_each(|(who, count)| println!("{count:>4} {who}"));
    let tested: BTreeSet<&str> = WALKED.iter().copied().collect();
    assert_eq!(tested, walked, "each page on which something is typed has a test, and no other");
    assert!(here > 100, "{here}");
}

/// What stands outside of a walk can be read there, and not written.
#[test]
fn a_walk_changes_nothing_of_the_machine() {
    if host::cannot_walk("the walk that tries to write") {
        return;
    }
    let machine = tempfile::tempdir().expect("a folder of the machine");
    let file = machine.path().join("file");
    fs::write(&file, "the machine's").expect("a file of the machine");
    let place = machine.path().display();
    let tries = [
        (format!("grep machine '{place}/file'"), "0"),
        (format!("echo walked > '{place}/file'"), "1"),
        (format!("rm '{place}/file'"), "1"),
        (format!("touch '{place}/new'"), "1"),
        ("is_sealed".to_owned(), "0"),
    ];
    let commands = Vec::from(tries.map(|(command, code)| (command, code.to_owned())));
    let step = |host: &str| Step { line: 0, host: host.to_owned(), way: Way::Aside, commands: commands.clone() };
    let ground = Ground::new(&std::env::temp_dir());
    for said in host::walk(ground.path(), &HOSTS.map(step)) {
        assert!(host::is_done(&said), "{said}");
    }
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "the machine's");
    assert_eq!(fs::read_dir(machine.path()).expect("its folder").count(), 1);
}
