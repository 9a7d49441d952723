//! A queue between threads with a bound.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Whoever puts something in never waits.
pub(in crate::daemon) struct BoundedQueue<T> {
    most: usize,
    inner: Mutex<QueueInner<T>>,
    changed: Condvar,
}

struct QueueInner<T> {
    items: VecDeque<T>,
    dropped: u64,
    is_closed: bool,
}

impl<T> BoundedQueue<T> {
    pub fn new(most: usize) -> BoundedQueue<T> {
        let inner = QueueInner { items: VecDeque::new(), dropped: 0, is_closed: false };
        BoundedQueue { most, inner: Mutex::new(inner), changed: Condvar::new() }
    }

    fn inner(&self) -> MutexGuard<'_, QueueInner<T>> {
        self.inner.lock().expect("nobody panics with a queue")
    }

    /// False: it is full or closed, and the item is gone.
    pub fn push(&self, item: T) -> bool {
        let mut inner = self.inner();
        let has_room = inner.items.len() < self.most && !inner.is_closed;
        if has_room {
            inner.items.push_back(item);
            self.changed.notify_all();
        }
        has_room
    }

    /// Where there is no room the oldest item makes it, and is counted.
    pub fn push_over(&self, item: T) {
        let mut inner = self.inner();
        if inner.items.len() == self.most {
            inner.items.pop_front();
            inner.dropped += 1;
        }
        inner.items.push_back(item);
        self.changed.notify_all();
    }

    /// Waits until there is something; `None` once it is closed and empty.
    pub fn take_all(&self) -> Option<Vec<T>> {
        let mut inner = self.wait_for_items();
        let items: Vec<T> = inner.items.drain(..).collect();
        (!items.is_empty()).then_some(items)
    }

    /// Waits for the next one, and tells how many were dropped since the last; `None` once it is closed: what is left stays.
    pub fn take_one(&self) -> Option<(T, u64)> {
        let mut inner = self.wait_for_items();
        if inner.is_closed {
            return None;
        }
        let dropped = std::mem::take(&mut inner.dropped);
        inner.items.pop_front().map(|item| (item, dropped))
    }

    fn wait_for_items(&self) -> MutexGuard<'_, QueueInner<T>> {
        let waits = |inner: &mut QueueInner<T>| inner.items.is_empty() && !inner.is_closed;
        self.changed.wait_while(self.inner(), waits).expect("nobody panics with a queue")
    }

    /// Nothing more comes in.
    pub fn close(&self) {
        self.inner().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits for so long, or until it is closed; whether it is.
    pub fn is_closed_within(&self, time: Duration) -> bool {
        let waits = |inner: &mut QueueInner<T>| !inner.is_closed;
        let (inner, _) =
            self.changed.wait_timeout_while(self.inner(), time, waits).expect("nobody panics with a queue");
        inner.is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_takes_no_more_or_gives_up_its_oldest() {
        let queue = BoundedQueue::new(2);
        assert_eq!([1, 2, 3].map(|item| queue.push(item)), [true, true, false]);
        queue.push_over(4);
        queue.push_over(5);
        assert_eq!((queue.take_one(), queue.take_one()), (Some((4, 2)), Some((5, 0))));
    }

    #[test]
    fn a_closed_queue_is_emptied_and_ends() {
        let queue = BoundedQueue::new(2);
        assert!(queue.push(1) && !queue.is_closed_within(Duration::ZERO));
        queue.close();
        assert!(!queue.push(2) && queue.is_closed_within(Duration::from_secs(60)));
        assert_eq!(queue.take_one(), None, "what is left stays");
        assert_eq!((queue.take_all(), queue.take_all()), (Some(vec![1]), None));
    }
}
