//! Values that a process creates at the first use and keeps: `OnceLock` with a fallible
//! initializer.
//!
//! Leaves to its users how a value is created. Invariants: a failure is not kept, so that the next
//! caller tries again; a value of a `Registry` exists once and is dropped with its last user.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// One value of the process, kept after it was created.
pub struct Kept<T> {
    value: OnceLock<T>,
    init_lock: Mutex<()>,
}

impl<T> Kept<T> {
    pub const fn empty() -> Self {
        Self { value: OnceLock::new(), init_lock: Mutex::new(()) }
    }

    /// The value, created by this call if no earlier call has created it.
    pub fn get_or_try<E>(&self, create: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let _init = lock(&self.init_lock);
        match self.value.get() {
            Some(value) => Ok(value),
            None => create().map(|created| self.value.get_or_init(|| created)),
        }
    }

    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Blocks until the value has been created.
    pub fn wait(&self) -> &T {
        self.value.wait()
    }
}

/// Values by key, each shared by several users.
pub struct Registry<K, T>(Mutex<Vec<(K, Weak<T>)>>);

impl<K: PartialEq, T> Registry<K, T> {
    pub const fn empty() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The value that the users of this key share, created by `create` if no user has it now.
    pub fn get_or_try<E>(
        &self,
        key: K,
        create: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut known = lock(&self.0);
        known.retain(|(_, value)| value.strong_count() > 0);
        let same = known.iter().find(|(other, _)| *other == key);
        if let Some(value) = same.and_then(|(_, value)| value.upgrade()) {
            return Ok(value);
        }
        let created = Arc::new(create()?);
        known.push((key, Arc::downgrade(&created)));
        Ok(created)
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
        let kept = Kept::empty();
        assert_eq!(kept.get_or_try(|| Err::<u8, _>("no file")), Err("no file"));
        assert_eq!(kept.get_or_try(|| Ok::<_, ()>(7)), Ok(&7));
        assert_eq!(kept.get_or_try(|| Err("not called")), Ok(&7));
    }

    #[test]
    fn users_of_one_key_share_a_value_until_the_last_one_drops_it() {
        let registry = Registry::empty();
        let get =
            |key: &'static str, value| registry.get_or_try(key, || Ok::<_, ()>(value)).unwrap();
        let (one, same, other) = (get("a", 1), get("a", 2), get("b", 3));
        assert!(Arc::ptr_eq(&one, &same) && *one == 1 && *other == 3);
        drop((one, same));
        assert_eq!(*get("a", 4), 4);
    }
}
