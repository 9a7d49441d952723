//! Worker threads for what must not run on the data thread and cannot run in a ring.
//!
//! Threads start on demand up to a bound and leave when idle. No device has all of them ([`DeviceQueues`]). A long job (zeroing)
//! goes back to the end of its device's queue after each piece, so that it never keeps short ones waiting behind it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;

use super::device_queues::DeviceQueues;
use super::op::{DiskAnswer, DiskError};
use super::work::{DiskTask, DiskWork, WorkStep};

/// Threads that each device has to itself, when others have taken all there are.
const OWN: usize = 2;
/// How long a thread stays without work.
const IDLE_TIME: Duration = Duration::from_secs(10);

pub(super) type FinishedWork = (DiskWork, Result<DiskAnswer, DiskError>);

pub(super) struct WorkerPool {
    shared: Arc<WorkerPoolShared>,
}

struct WorkerPoolShared {
    state: Mutex<WorkerPoolState>,
    wake: Condvar,
    /// An eventfd of the data thread.
    bell: OwnedFd,
}

struct WorkerPoolState {
    /// A slot for each thread there may be: who has one needs a thread, and the bound on slots is that on threads.
    queues: DeviceQueues<DiskWork>,
    /// Has its slot, and waits for a thread only for as long as that takes to wake.
    assigned: VecDeque<DiskWork>,
    done: Vec<FinishedWork>,
    handles: Vec<JoinHandle<()>>,
    idle: usize,
    threads: usize,
    stop: bool,
}

impl WorkerPool {
    pub fn new(threads_max: usize, bell: OwnedFd) -> WorkerPool {
        let state = WorkerPoolState {
            queues: DeviceQueues::new(threads_max, OWN),
            assigned: VecDeque::new(),
            done: Vec::new(),
            handles: Vec::new(),
            idle: 0,
            threads: 0,
            stop: false,
        };
        let shared = WorkerPoolShared { state: Mutex::new(state), wake: Condvar::new(), bell };
        WorkerPool { shared: Arc::new(shared) }
    }

    /// Hands over a batch and says how many it was. Work comes back through `collect`, after the bell.
    pub fn submit(&self, batch: impl Iterator<Item = DiskWork>) -> usize {
        let mut count = 0;
        let mut state = self.shared.lock();
        for work in batch {
            count += 1;
            state.queues.push(work.device, work);
        }
        self.shared.assign(&mut state, 0);
        self.shared.recruit(&mut state);
        if state.threads == 0 {
            // The machine gives us no thread at all: slow is better than never.
            drop(state);
            self.shared.run_queue(true);
        }
        count
    }

    /// Moves finished work to `out`.
    pub fn collect(&self, out: &mut Vec<FinishedWork>) {
        out.append(&mut self.shared.lock().done);
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        let handles = {
            let mut state = self.shared.lock();
            state.stop = true;
            state.queues.clear();
            state.assigned.clear();
            std::mem::take(&mut state.handles)
        };
        self.shared.wake.notify_all();
        for handle in handles {
            // A worker that panicked has already said so.
            let _ = handle.join();
        }
    }
}

impl WorkerPoolShared {
    fn lock(&self) -> MutexGuard<'_, WorkerPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives slots to those whose turn it is, and wakes a thread for each but the `here` that the caller serves itself.
    fn assign(&self, state: &mut WorkerPoolState, here: usize) {
        while let Some(work) = state.queues.next() {
            state.assigned.push_back(work);
            if state.assigned.len() > here {
                self.wake.notify_one();
            }
        }
    }

    /// Starts the threads that are missing.
    fn recruit(self: &Arc<WorkerPoolShared>, state: &mut WorkerPoolState) {
        while state.idle < state.assigned.len() {
            if !self.spawn(state) {
                break;
            }
        }
    }

    fn spawn(self: &Arc<WorkerPoolShared>, state: &mut WorkerPoolState) -> bool {
        state.handles.retain(|handle| !handle.is_finished());
        let shared = self.clone();
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

    /// A worker's life; `borrowed`: a thread that only helps out until the queue is empty.
    fn run_queue(self: &Arc<WorkerPoolShared>, borrowed: bool) {
        let mut state = self.lock();
        loop {
            if let Some(mut work) = state.assigned.pop_front() {
                state.idle -= usize::from(!borrowed);
                drop(state);
                let finished = run_piece(&mut work);
                state = self.lock();
                state.idle += usize::from(!borrowed);
                state.queues.leave(work.device);
                match finished {
                    Some(result) => self.finish(&mut state, work, result),
                    None if state.stop => {}
                    None => state.queues.push(work.device, work),
                }
                self.assign(&mut state, 1);
                if !borrowed {
                    self.recruit(&mut state);
                }
                continue;
            }
            if borrowed || state.stop {
                break;
            }
            let (guard, timeout) = self.wake.wait_timeout(state, IDLE_TIME).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if timeout.timed_out() && state.assigned.is_empty() {
                break;
            }
        }
        if !borrowed {
            state.idle -= 1;
            state.threads -= 1;
        }
    }

    fn finish(&self, state: &mut WorkerPoolState, work: DiskWork, result: Result<DiskAnswer, DiskError>) {
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
fn run_piece(work: &mut DiskWork) -> Option<Result<DiskAnswer, DiskError>> {
    loop {
        match work.step_blocking() {
            WorkStep::Finished(result) => return Some(result),
            WorkStep::Again if matches!(work.task, DiskTask::Zero { .. }) => return None,
            WorkStep::Again => std::thread::yield_now(),
        }
    }
}
