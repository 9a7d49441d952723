//! Commands of a group around changes of its role: one before and one after each promotion and demotion of this node.

use std::time::Duration;

use crate::forms::{ValueForm, duration, list};
use crate::keys::{Takes, keyed};
use crate::limits;

/// A moment at which a command may be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleHook {
    BeforePromote,
    BeforeDemote,
    AfterPromote,
    AfterDemote,
}

keyed! {
    /// The commands of one group, each a program and its arguments; empty: none.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RoleHooks, takes(Takes::Restart) {
        "hooks.before_promote" => before_promote: Vec<String> = command();
            choice "[\"/usr/local/sbin/fence\", \"off\"]", "before a promotion; a fence only if FARSHORE_FORCED is yes",
            "a program by its whole path, and its arguments, run on this node before [a promotion here](operate/fail-over.md#commands-around-a-change-of-role), such as a fence that turns the other node off. A fence runs only where `FARSHORE_FORCED` is `yes`: without force the promotion needs the link to the other node. If it cannot be started, ends with another code than 0, or takes too long, the promotion is refused";
        "hooks.before_demote" => before_demote: Vec<String> = command();
            choice "[\"/usr/local/sbin/leaves\"]", "run before a demotion here; if it fails nobody is demoted",
            "the same before a demotion of this node";
        "hooks.after_promote" => after_promote: Vec<String> = command();
            choice "[\"/usr/local/sbin/move-address\"]", "run after a promotion here; a failure is told and changes nothing",
            "run once a promotion of this node is on record. A failure is a warning of `promote` and an event; the promotion stays";
        "hooks.after_demote" => after_demote: Vec<String> = command();
            choice "[\"/usr/local/sbin/drop-address\"]", "the same after a demotion",
            "the same after a demotion";
        /// Of each of the commands.
        "hooks.timeout" => timeout: Duration = duration(limits::ROLE_HOOK_TIMEOUT);
            choice "\"30s\"", "for each of them; one that takes longer is killed with its process group, and has failed",
            "for each of these commands. One that takes longer is killed with all processes of its group, and counts as failed";
    }
}

impl RoleHook {
    pub const ALL: [RoleHook; 4] =
        [RoleHook::BeforePromote, RoleHook::BeforeDemote, RoleHook::AfterPromote, RoleHook::AfterDemote];

    /// As the file and events have it.
    pub fn as_str(self) -> &'static str {
        match self {
            RoleHook::BeforePromote => "before_promote",
            RoleHook::BeforeDemote => "before_demote",
            RoleHook::AfterPromote => "after_promote",
            RoleHook::AfterDemote => "after_demote",
        }
    }
}

impl RoleHooks {
    /// The program and its arguments; empty: there is none.
    pub fn command(&self, hook: RoleHook) -> &[String] {
        match hook {
            RoleHook::BeforePromote => &self.before_promote,
            RoleHook::BeforeDemote => &self.before_demote,
            RoleHook::AfterPromote => &self.after_promote,
            RoleHook::AfterDemote => &self.after_demote,
        }
    }
}

/// A program by its path, and its arguments.
pub(crate) fn command() -> ValueForm<Vec<String>> {
    let word = ValueForm::new("path", "words", String::new(), |text, _| word_of_command(text), String::clone);
    list(format!("a path and its arguments, at most {} words", limits::HOOK_WORDS_MAX), word).by_default("none")
}

fn word_of_command(text: &str) -> Result<String, String> {
    match text {
        _ if text.contains('\0') => Err("a word contains a zero byte, which no program can be given".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// What is wrong with a command, and which word of it is meant; `None`: all of them.
pub(crate) fn wrong_command(command: &[String]) -> Vec<(Option<usize>, String)> {
    let mut wrong = Vec::new();
    if let Some(program) = command.first()
        && !program.starts_with('/')
    {
        wrong.push((
            Some(0),
            format!("{program:?} is no whole path, and no search path is used; write it from \"/\" on"),
        ));
    }
    if command.len() > limits::HOOK_WORDS_MAX {
        wrong.push((None, format!("it has more than {} words; put them into a script", limits::HOOK_WORDS_MAX)));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;
    use crate::example::EXAMPLE;

    fn with(lines: &str) -> Result<Config, crate::Problems> {
        let text = EXAMPLE.replacen("[groups.db.volumes.data]", &format!("{lines}\n\n[groups.db.volumes.data]"), 1);
        Config::parse(Path::new("/etc/farshore/farshore.toml"), &text)
    }

    #[test]
    fn each_moment_has_its_own_command() {
        let none = with("").expect("sound");
        assert!(RoleHook::ALL.iter().all(|hook| none.groups[0].hooks.command(*hook).is_empty()));
        assert_eq!(none.groups[0].hooks.timeout, limits::ROLE_HOOK_TIMEOUT.default);
        let lines = RoleHook::ALL.map(|hook| format!("hooks.{0} = [\"/bin/{0}\", \"x\"]\n", hook.as_str())).concat();
        let all = with(&format!("{lines}hooks.timeout = \"5s\"")).expect("sound");
        for hook in RoleHook::ALL {
            assert_eq!(all.groups[0].hooks.command(hook), [format!("/bin/{}", hook.as_str()), "x".to_owned()]);
        }
        assert_eq!(all.groups[0].hooks.timeout, Duration::from_secs(5));
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let many = vec!["\"x\""; limits::HOOK_WORDS_MAX].join(", ");
        let wrong = with(&format!(
            "hooks.before_promote = [\"fence\"]\nhooks.after_promote = [\"/bin/true\", {many}]\nhooks.before_demote = \"/bin/true\"\n\
             hooks.timeout = \"11m\"\nhooks.after_promot = [\"/x\"]"
        ));
        let wrong = wrong.expect_err("five problems").to_string();
        for why in [
            "before_promote: \"fence\" is no whole path",
            "after_promote: it has more than 64 words",
            "\"before_demote\" is a text, not a list",
            "timeout: \"11m\" is too long",
            "unknown key \"after_promot\"",
            "did you mean \"after_promote\"?",
        ] {
            assert!(wrong.contains(why), "{why}: {wrong}");
        }
    }
}
