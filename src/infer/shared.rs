//! What states of different paths share until one of them changes it. In: any value. Out: [`Shared`]; a comparison passes over what is the
//! same part. Never: threads: a state stays on the one that made it. Next: `scale/value.rs`, `sharding/state.rs`.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// A part of a state; a copy is the same part until one of both is written.
#[derive(Debug, Default)]
pub struct Shared<T>(Rc<T>);

impl<T> Shared<T> {
    pub fn new(inner: T) -> Shared<T> {
        Shared(Rc::new(inner))
    }

    /// Whether it is the very same part: nothing was written since one became two.
    pub fn is(&self, other: &Shared<T>) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(Rc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Rc::make_mut(&mut self.0)
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        self.is(other) || *self.0 == *other.0
    }
}

impl<T: Eq> Eq for Shared<T> {}
