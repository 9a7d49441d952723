//! Slots that several devices share, and a queue before them for each device.
//!
//! A device whose turn it is gets a slot only while it holds fewer slots than are free. So one
//! device takes half of all slots at most, and one that never answers keeps what it has and no more. And each has a few
//! slots to itself, which are added when nothing else is left: many that hang, one after the other, leave those.
//!
//! What must hold:
//! * no device is given a slot while it holds as many as are free, save for those that each has to itself;
//! * requests of one device start in the order in which they came, and devices take turns.

use std::collections::VecDeque;

pub(super) struct DeviceQueues<T> {
    slots: usize,
    /// What each device may have whatever the others hold.
    own: usize,
    taken: usize,
    /// By the device's number.
    queues: Vec<DeviceQueue<T>>,
    /// Devices for which something waits, each once, in the order of their turns.
    order: VecDeque<usize>,
}

struct DeviceQueue<T> {
    taken: usize,
    waiting: VecDeque<T>,
}

impl<T> DeviceQueues<T> {
    pub fn new(slots: usize, own: usize) -> DeviceQueues<T> {
        assert!(own > 0, "a device without a slot would wait for ever");
        DeviceQueues { slots, own, taken: 0, queues: Vec::new(), order: VecDeque::new() }
    }

    pub fn push(&mut self, device: usize, request: T) {
        self.queue_to_join(device).waiting.push_back(request);
    }

    /// For one that had its slot and needs it once more.
    pub fn push_first(&mut self, device: usize, request: T) {
        self.queue_to_join(device).waiting.push_front(request);
    }

    /// Gives the next one its slot.
    pub fn next(&mut self) -> Option<T> {
        let may_have = self.slots.saturating_sub(self.taken).max(self.own);
        for _ in 0..self.order.len() {
            let device = self.order.pop_front()?;
            let queue = &mut self.queues[device];
            let may_start = queue.taken < may_have;
            let request = if may_start { queue.waiting.pop_front() } else { None };
            if !queue.waiting.is_empty() {
                self.order.push_back(device);
            }
            if let Some(request) = request {
                queue.taken += 1;
                self.taken += 1;
                return Some(request);
            }
        }
        None
    }

    /// A slot of this device is free again.
    pub fn leave(&mut self, device: usize) {
        let queue = &mut self.queues[device];
        assert!(queue.taken > 0, "who leaves had a slot");
        queue.taken -= 1;
        self.taken -= 1;
    }

    /// Slots that are taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Forgets all that waits.
    pub fn clear(&mut self) {
        self.order.clear();
        self.queues.iter_mut().for_each(|queue| queue.waiting.clear());
    }

    /// The device's line, where somebody joins it.
    fn queue_to_join(&mut self, device: usize) -> &mut DeviceQueue<T> {
        while self.queues.len() <= device {
            self.queues.push(DeviceQueue { taken: 0, waiting: VecDeque::new() });
        }
        let queue = &mut self.queues[device];
        if queue.waiting.is_empty() {
            self.order.push_back(device);
        }
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What of so many requests of each device gets a slot, by device.
    fn taken(slots: usize, asked: &[usize]) -> Vec<usize> {
        let mut queues = DeviceQueues::new(slots, 1);
        for (device, count) in asked.iter().enumerate() {
            (0..*count).for_each(|_| queues.push(device, device));
        }
        let mut taken = vec![0; asked.len()];
        while let Some(device) = queues.next() {
            taken[device] += 1;
        }
        taken
    }

    #[test]
    fn one_device_takes_half_and_several_leave_as_much_as_each_has() {
        assert_eq!(taken(512, &[1000]), [256]);
        assert_eq!(taken(512, &[100]), [100]);
        assert_eq!(taken(9, &[1000, 1000]), [3, 3]);
        assert_eq!(taken(512, &[1000, 1]), [256, 1]);
        let many = taken(512, &[1000; 300]);
        assert!(many.iter().all(|count| *count >= 1) && many.iter().sum::<usize>() <= 512, "{many:?}");
    }

    #[test]
    fn those_that_hold_their_slots_for_ever_leave_room_for_all_others() {
        let mut queues = DeviceQueues::new(64, 2);
        let held = (0..20).map(|device| {
            (0..100).for_each(|_| queues.push(device, device));
            std::iter::from_fn(|| queues.next()).count()
        });
        let held: Vec<_> = held.collect();
        assert_eq!(held[..6], [32, 16, 8, 4, 2, 2]);
        assert!(held[6..].iter().all(|count| *count == 2), "{held:?}");
        for device in 20..30 {
            (0..3).for_each(|_| queues.push(device, device));
            assert_eq!([queues.next(), queues.next(), queues.next()], [Some(device), Some(device), None]);
            queues.leave(device);
            assert_eq!([queues.next(), queues.next()], [Some(device), None], "what was held back stays so");
        }
    }

    #[test]
    fn a_device_keeps_its_order_and_devices_take_turns() {
        let mut queues = DeviceQueues::new(100, 1);
        for number in 0..3 {
            queues.push(0, (0, number));
        }
        queues.push(1, (1, 0));
        assert_eq!([queues.next(), queues.next()], [Some((0, 0)), Some((1, 0))]);
        queues.leave(0);
        queues.push_first(0, (0, 0));
        let rest: Vec<_> = std::iter::from_fn(|| queues.next()).collect();
        assert_eq!(rest, [(0, 0), (0, 1), (0, 2)]);
    }

    #[test]
    fn who_waits_gets_the_slot_that_is_left() {
        let mut queues = DeviceQueues::new(4, 1);
        (0..5).for_each(|number| queues.push(0, number));
        assert_eq!([queues.next(), queues.next(), queues.next()], [Some(0), Some(1), None]);
        queues.leave(0);
        assert_eq!([queues.next(), queues.next()], [Some(2), None]);
        queues.clear();
        queues.leave(0);
        assert_eq!((queues.next(), queues.taken()), (None, 1));
    }
}
