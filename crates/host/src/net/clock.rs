//! What the kernel thinks of its own clock.

/// The clock's state, as whoever disciplines it told the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelClock {
    /// Something keeps it right.
    pub synchronised: bool,
    /// Bounds, in seconds: what it is thought to be off, and at most.
    pub estimated_error_s: f64,
    pub maximum_error_s: f64,
}

/// `None` where the kernel does not say (a container may forbid the question).
pub fn clock() -> Option<KernelClock> {
    // SAFETY: an all-zero `timex` is a valid one, and asks for nothing to be changed.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads and writes one complete structure, which lives across the call.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    let seconds = |microseconds: i64| microseconds as f64 / 1e6;
    (result >= 0).then(|| KernelClock {
        synchronised: result != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0,
        estimated_error_s: seconds(state.esterror),
        maximum_error_s: seconds(state.maxerror),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn asking_changes_nothing() {
        let twice = [super::clock(), super::clock()];
        assert_eq!(twice[0].map(|clock| clock.synchronised), twice[1].map(|clock| clock.synchronised));
        assert!(twice[0].is_none_or(|clock| clock.maximum_error_s >= 0.0));
    }
}
