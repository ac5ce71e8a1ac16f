//! What a process makes at first need and keeps.
//!
//! Leaves to its users what they make. Invariants: a failure is not kept, so that the next caller
//! tries again; a value of a `Registry` exists once and is dropped with its last user.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// One value of the process, kept once it could be made.
pub struct Kept<T> {
    value: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> Kept<T> {
    pub const fn unmade() -> Self {
        Self { value: OnceLock::new(), making: Mutex::new(()) }
    }

    /// The value, made by this call if no call before has made it.
    pub fn get_or_try<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let _making = lock(&self.making);
        match self.value.get() {
            Some(value) => Ok(value),
            None => make().map(|made| self.value.get_or_init(|| made)),
        }
    }

    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Blocks until the value has been made.
    pub fn wait(&self) -> &T {
        self.value.wait()
    }
}

/// Values by key that several users share.
pub struct Registry<K, T>(Mutex<Vec<(K, Weak<T>)>>);

impl<K: PartialEq, T> Registry<K, T> {
    pub const fn empty() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The value that users of this key share. `make` is called if there is none.
    pub fn get_or_try<E>(&self, key: K, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let mut known = lock(&self.0);
        known.retain(|(_, value)| value.strong_count() > 0);
        let same = known.iter().find(|(other, _)| *other == key);
        if let Some(value) = same.and_then(|(_, value)| value.upgrade()) {
            return Ok(value);
        }
        let made = Arc::new(make()?);
        known.push((key, Arc::downgrade(&made)));
        Ok(made)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_not_kept_and_a_value_is() {
        let kept = Kept::unmade();
        assert_eq!(kept.get_or_try(|| Err::<u8, _>("no file")), Err("no file"));
        assert_eq!(kept.get_or_try(|| Ok::<_, ()>(7)), Ok(&7));
        assert_eq!(kept.get_or_try(|| Err("not called")), Ok(&7));
    }

    #[test]
    fn users_of_one_key_share_a_value_until_the_last_of_them_drops_it() {
        let registry = Registry::empty();
        let get =
            |key: &'static str, value| registry.get_or_try(key, || Ok::<_, ()>(value)).unwrap();
        let (one, same, other) = (get("a", 1), get("a", 2), get("b", 3));
        assert!(Arc::ptr_eq(&one, &same) && *one == 1 && *other == 3);
        drop((one, same));
        assert_eq!(*get("a", 4), 4);
    }
}
