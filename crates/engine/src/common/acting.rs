//! What a group is set to, and what it acts by: the same, but for the mode while the mode ladder is down.

use core::ops::Deref;

use crate::Settings;
use crate::injected_fault::{Fault, injected};
use crate::state::Mode;

/// Read as [`Settings`], it is what the group acts by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActingSettings {
    as_set: Settings,
    acting: Settings,
}

impl Deref for ActingSettings {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.acting
    }
}

impl ActingSettings {
    pub fn new(settings: Settings) -> ActingSettings {
        ActingSettings { as_set: settings, acting: settings }
    }

    /// What an operator set: this is reported to the peer and put on record.
    pub fn as_set(&self) -> &Settings {
        &self.as_set
    }

    /// An operator sets these. A lowered mode outlives what says nothing of the ladder; else the mode that is set counts again. True: the
    /// ladder is another one.
    pub fn set(&mut self, settings: Settings) -> bool {
        let rungs = |settings: &Settings| settings.ladder().map(|ladder| (settings.mode, ladder.mode));
        let is_another = rungs(&settings) != rungs(&self.as_set);
        let mode = if is_another || !self.is_lowered() { settings.mode } else { self.acting.mode };
        (self.as_set, self.acting) = (settings, Settings { mode, ..settings });
        is_another
    }

    /// The ladder goes one step down.
    pub fn lower(&mut self, to: Mode) {
        assert!(to.is_below(self.as_set.mode), "a step down leads below the mode that is set");
        self.acting.mode = to;
    }

    /// The mode that is set counts again.
    pub fn restore(&mut self) {
        self.acting.mode = if injected(Fault::LadderAboveSet) { Mode::Sync } else { self.as_set.mode };
    }

    pub fn is_lowered(&self) -> bool {
        self.acting.mode != self.as_set.mode
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::Fallback;
    use crate::state::Policy;

    fn with_ladder() -> Settings {
        let time = Duration::from_secs(1);
        let fallback = Fallback { mode: Mode::Async, latency: time, after: time, lag: None, return_after: time };
        Settings { mode: Mode::Sync, fallback: Some(fallback), ..Settings::default() }
    }

    #[test]
    fn a_lowered_mode_outlives_settings_that_say_nothing_of_the_ladder() {
        let set = with_ladder();
        let after = |change: fn(&mut Settings)| {
            let mut acting = ActingSettings::new(set);
            acting.lower(Mode::Async);
            let mut settings = set;
            change(&mut settings);
            let is_another = acting.set(settings);
            assert_eq!(*acting.as_set(), settings);
            assert_eq!(is_another, acting.mode != Mode::Async, "the ladder is another one");
            acting.mode
        };
        assert_eq!(after(|s| s.queue_items += 1), Mode::Async);
        assert_eq!(
            after(|s| s.fallback.as_mut().unwrap().latency *= 2),
            Mode::Async,
            "it is judged by that from now on"
        );
        assert_eq!(after(|s| s.fallback = None), Mode::Sync);
        assert_eq!(after(|s| s.fallback.as_mut().unwrap().mode = Mode::Superasync), Mode::Sync);
        assert_eq!(after(|s| s.mode = Mode::Nearsync), Mode::Nearsync);
        assert_eq!(after(|s| s.policy = Policy::Strict), Mode::Sync, "strict answers nobody without the peer");
        assert_eq!(after(|s| s.mode = Mode::Logging), Mode::Logging);
    }
}
