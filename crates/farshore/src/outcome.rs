//! How a command ends, and what it says until then.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::api::{ErrorCode, OperationState, RefusalView};

/// How a command ends; the numbers are the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    Done = 0,
    /// Done, and something needs an operator's eye.
    Warning = 1,
    Failed = 2,
    Usage = 3,
}

/// Why a command did not do its work: a sentence, and how it ends.
#[derive(Debug)]
pub struct CommandFailure {
    pub exit: Exit,
    pub message: String,
    /// The same for programs, where it is no mere failure.
    pub cause: Option<Box<FailureCause>>,
}

/// Why a command did not do its work, as a code, and what is known of that work.
#[derive(Debug)]
pub struct FailureCause {
    pub refusal: RefusalView,
    pub state: OperationState,
}

impl CommandFailure {
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into(), cause: None }
    }

    /// What is known of its work follows from the code.
    pub fn because(self, refusal: impl Into<RefusalView>) -> Self {
        let refusal = refusal.into();
        let state = refusal.outcome(&ErrorCode::Failed);
        self.ended(refusal, state)
    }

    pub fn ended(self, refusal: RefusalView, state: OperationState) -> Self {
        Self { cause: Some(Box::new(FailureCause { refusal, state })), ..self }
    }

    /// A daemon's answer that it was not done.
    pub fn refused(message: String, code: &ErrorCode, refusal: Option<Box<RefusalView>>) -> Self {
        let refusal = refusal.map_or_else(|| RefusalView::of(code), |refusal| *refusal);
        let state = refusal.outcome(code);
        Self::from(message).ended(refusal, state)
    }

    /// Its code, if it has one.
    pub fn code(&self) -> Option<&str> {
        self.cause.as_ref().map(|cause| cause.refusal.code.as_str())
    }
}

/// Whatever reports itself in a sentence is a failed command.
impl<E: Display> From<E> for CommandFailure {
    fn from(error: E) -> Self {
        Self { exit: Exit::Failed, message: format!("{error:#}"), cause: None }
    }
}

pub type CommandOutcome = Result<ExitCode, CommandFailure>;

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// What a terminal takes for orders and serde_json leaves as it is: DEL, and the second set of controls, of which U+009B begins a sequence.
const ORDERS: std::ops::RangeInclusive<char> = '\u{7f}'..='\u{9f}';

/// Home, and erase what stands below: less flicker than erasing first.
pub const REDRAW: &str = "\x1b[H\x1b[J";

/// Prints to standard output; what a peer sent gives the terminal no orders by it. `false`: the reader went away (`| head`), which is no
/// failure, and the end of any loop.
pub fn print(text: &str) -> Result<bool, CommandFailure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(shown(text).as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("the answer cannot be written to standard output: {error}").into()),
    }
}

/// In JSON these characters stand in texts only, where this is another way to write them; elsewhere they are seen.
fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(|letter: char| ORDERS.contains(&letter)) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match ORDERS.contains(&letter) {
            true => shown += &format!("\\u{:04x}", u32::from(letter)),
            false => shown.push(letter),
        }
    }
    shown.into()
}

/// A line of a stream: what happens, as it happens; whether somebody still reads it.
pub fn event(schema: &str, name: &str, data: &Value) -> Result<bool, CommandFailure> {
    print(&format!("{}\n", json!({ "schema": schema, "event": name, "data": data })))
}

pub fn warn(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "farshore: warning: {}", clean_lines(&text.to_string()));
}

/// Sentences may carry what a peer sent: of control characters only the ends of lines and tabs reach the terminal.
pub fn clean_lines(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { '?' } else { c }).collect()
}

/// A terminal on which a line can be drawn again.
pub fn is_screen(stream: &impl IsTerminal) -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    stream.is_terminal() && !dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node's name in `status --json --on` was a sequence of the terminal's.
    #[test]
    fn json_gives_a_terminal_no_orders_and_means_the_same() {
        let object = json!({ "node": "al\u{9b}2Jpha\u{7f}\u{80}\u{9f}\u{a0}\u{1b}é" });
        let text = object.to_string();
        let shown = shown(&text);
        assert!(text.contains('\u{9b}') && !shown.contains(char::is_control), "{shown:?}");
        assert_eq!(serde_json::from_str::<Value>(&shown).ok(), Some(object));
        assert!(matches!(super::shown("\u{1b}[1mé\n"), Cow::Borrowed("\u{1b}[1mé\n")), "our own colours");
    }
}
