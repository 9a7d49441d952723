//! Numbered pigeonholes: things in flight, found again by a small number, without an allocation once warm.

pub(super) struct Slab<T> {
    holes: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { holes: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// A number that names the thing until it is taken.
    pub fn put(&mut self, thing: T) -> u32 {
        if let Some(number) = self.free.pop() {
            let hole = &mut self.holes[number as usize];
            assert!(hole.is_none(), "a free hole is empty");
            *hole = Some(thing);
            return number;
        }
        let number = u32::try_from(self.holes.len()).expect("fewer things than 2^32 are in flight");
        self.holes.push(Some(thing));
        number
    }

    /// Takes the thing out; `None` when nothing has this number.
    pub fn take(&mut self, number: u32) -> Option<T> {
        let thing = self.holes.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(thing)
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.holes.get_mut(number as usize)?.as_mut()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.holes.iter_mut().flatten()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.holes.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_and_never_shared() {
        let mut slab = Slab::default();
        let (a, b) = (slab.put("a"), slab.put("b"));
        assert_ne!(a, b);
        assert_eq!(slab.take(a), Some("a"));
        assert_eq!(slab.take(a), None);
        assert_eq!(slab.put("c"), a);
        assert_eq!(slab.get_mut(b), Some(&mut "b"));
        assert_eq!(slab.iter().count(), 2);
        assert_eq!(slab.take(77), None);
    }
}
