//! A generational slab: a key never refers to a later value in the same slot.
//! Owns: slots and their generations.      Never: knows what it stores.
//! In: values.  Out: `Key`s that stop working once their value is taken.
//! Tests: below.
//!
//! Written by hand because its keys are the ids of requests: the crate `slab` gives the same key again, so that a late
//! answer would reach a later call, and the numbers of `slotmap` go beyond 2^53, where a JavaScript peer loses digits.

/// A place in a [`Slab`] and which of its tenants is meant. Generations start at 1, so that a key's number is
/// never below [`Key::FIRST`] and smaller numbers are free for other uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    generation: u32,
    index: u32,
}

/// Bits of a key's number that hold the index: a million calls at once, and numbers stay below 2^53, which is
/// as far as a JavaScript peer can count.
const INDEX_BITS: u32 = 20;

impl Key {
    /// The smallest number a key can have.
    pub const FIRST: u64 = 1 << INDEX_BITS;
    /// How many values fit in a slab whose keys are sent as numbers.
    pub const CAPACITY: usize = 1 << INDEX_BITS;

    /// The key as one number.
    pub fn number(self) -> u64 {
        (u64::from(self.generation) << INDEX_BITS) | u64::from(self.index)
    }

    /// The key with this number, if there can be one.
    pub fn from_number(number: u64) -> Option<Key> {
        let generation = u32::try_from(number >> INDEX_BITS).ok().filter(|&g| g > 0)?;
        let index = u32::try_from(number & (Self::FIRST - 1)).ok()?;
        Some(Key { generation, index })
    }
}

/// Values under keys that are cheap to check and never reused.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub fn insert(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.1 = Some(value);
            return Key { generation: slot.0, index };
        }
        let index = u32::try_from(self.slots.len()).expect("a slab is bounded by its owner");
        self.slots.push((1, Some(value)));
        Key { generation: 1, index }
    }

    /// The value under a key, while it is there.
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.0 == key.generation { slot.1.as_ref() } else { None }
    }

    /// The value under a key, to change it.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.0 == key.generation { slot.1.as_mut() } else { None }
    }

    /// Takes the value out; the key is dead from then on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.0 != key.generation {
            return None;
        }
        let value = slot.1.take()?;
        // A slot whose generations are used up is retired rather than reused.
        if slot.0 < u32::MAX {
            slot.0 += 1;
            self.free.push(key.index);
        }
        Some(value)
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values with their keys, in order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, (generation, value))| {
            let index = u32::try_from(index).ok()?;
            Some((Key { generation: *generation, index }, value.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_key_stays_dead() {
        let mut slab = Slab::default();
        let first = slab.insert("a");
        assert_eq!(slab.remove(first), Some("a"));
        let second = slab.insert("b");
        assert_ne!(first, second);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"b"));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn numbers_round_trip_and_stay_clear_of_small_ones() {
        let mut slab = Slab::default();
        for _ in 0..3 {
            let key = slab.insert(());
            assert!(key.number() >= Key::FIRST);
            assert_eq!(Key::from_number(key.number()), Some(key));
            slab.remove(key);
        }
        assert_eq!(Key::from_number(7), None);
        assert_eq!(Key::from_number(u64::MAX), None);
    }
}
