//! Worker threads for what must not run on the data thread and cannot run in a ring.
//!
//! Threads start on demand up to a bound and leave when idle. A long job (zeroing) goes back to the end of the line
//! after each piece, so that it never keeps short ones waiting behind it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;

use super::op::{Answer, DiskError};
use super::work::{Step, Task, Work};

/// How long a thread stays without work.
const IDLE_TIME: Duration = Duration::from_secs(10);

pub(super) type Done = (Work, Result<Answer, DiskError>);

pub(super) struct Workers {
    shared: Arc<Shared>,
    threads_max: usize,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// An eventfd of the data thread.
    bell: OwnedFd,
}

struct State {
    queue: VecDeque<Work>,
    done: Vec<Done>,
    handles: Vec<JoinHandle<()>>,
    idle: usize,
    threads: usize,
    stop: bool,
}

impl Workers {
    pub fn new(threads_max: usize, bell: OwnedFd) -> Workers {
        let state =
            State { queue: VecDeque::new(), done: Vec::new(), handles: Vec::new(), idle: 0, threads: 0, stop: false };
        let shared = Shared { state: Mutex::new(state), wake: Condvar::new(), bell };
        Workers { shared: Arc::new(shared), threads_max: threads_max.max(1) }
    }

    /// Hands over a batch and says how many it was. Work comes back through `collect`, after the bell.
    pub fn submit(&self, batch: impl Iterator<Item = Work>) -> usize {
        let mut count = 0;
        let mut state = self.shared.lock();
        for work in batch {
            count += 1;
            state.queue.push_back(work);
            self.shared.wake.notify_one();
        }
        while state.idle < state.queue.len() && state.threads < self.threads_max {
            if !self.spawn(&mut state) {
                break;
            }
        }
        if state.threads == 0 {
            // The machine gives us no thread at all: slow is better than never.
            drop(state);
            self.shared.run_queue(true);
        }
        count
    }

    /// Moves finished work to `out`.
    pub fn collect(&self, out: &mut Vec<Done>) {
        out.append(&mut self.shared.lock().done);
    }

    fn spawn(&self, state: &mut State) -> bool {
        state.handles.retain(|handle| !handle.is_finished());
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("disk-worker".into());
        match thread.spawn(move || shared.run_queue(false)) {
            Ok(handle) => {
                state.handles.push(handle);
                state.threads += 1;
                // Counted idle at once, so that the caller's loop starts no second thread for the same work.
                state.idle += 1;
                true
            }
            Err(error) => {
                tracing::warn!("no further disk worker could be started: {error}; going on with {}", state.threads);
                false
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let handles = {
            let mut state = self.shared.lock();
            state.stop = true;
            state.queue.clear();
            std::mem::take(&mut state.handles)
        };
        self.shared.wake.notify_all();
        for handle in handles {
            // A worker that panicked has already said so.
            let _ = handle.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker's life; `borrowed`: a thread that only helps out until the queue is empty.
    fn run_queue(&self, borrowed: bool) {
        let mut state = self.lock();
        loop {
            if let Some(mut work) = state.queue.pop_front() {
                state.idle -= usize::from(!borrowed);
                drop(state);
                let finished = run_piece(&mut work);
                state = self.lock();
                state.idle += usize::from(!borrowed);
                match finished {
                    Some(result) => self.finish(&mut state, work, result),
                    None if state.stop => {}
                    None => state.queue.push_back(work),
                }
                continue;
            }
            if borrowed || state.stop {
                break;
            }
            let (guard, timeout) = self.wake.wait_timeout(state, IDLE_TIME).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if timeout.timed_out() && state.queue.is_empty() {
                break;
            }
        }
        if !borrowed {
            state.idle -= 1;
            state.threads -= 1;
        }
    }

    fn finish(&self, state: &mut State, work: Work, result: Result<Answer, DiskError>) {
        let first = state.done.is_empty();
        state.done.push((work, result));
        if first {
            match rustix::io::write(&self.bell, &1u64.to_ne_bytes()) {
                // A full counter has rung already.
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(errno) => panic!("the data thread cannot be told of finished work: {errno}"),
            }
        }
    }
}

/// Carries the work on: to its end, or for zeroing by one piece.
fn run_piece(work: &mut Work) -> Option<Result<Answer, DiskError>> {
    loop {
        match work.step_blocking() {
            Step::Finished(result) => return Some(result),
            Step::Again if matches!(work.task, Task::Zero { .. }) => return None,
            Step::Again => std::thread::yield_now(),
        }
    }
}
