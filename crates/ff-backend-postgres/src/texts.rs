//! Texts of statements that were put together once and are asked for again and again.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// More shapes than this were never seen; whoever finds another way begins anew.
const MOST: usize = 4096;

/// Each text by the shape that it follows from.
pub(crate) struct Texts<S>(Mutex<HashMap<S, Arc<str>>>);

impl<S> Default for Texts<S> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<S: Hash + Eq> Texts<S> {
    pub fn get(&self, shape: S, text: impl FnOnce(&S) -> String) -> Arc<str> {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = texts.get(&shape) {
            return known.clone();
        }
        if texts.len() == MOST {
            texts.clear();
        }
        let made: Arc<str> = text(&shape).into();
        texts.insert(shape, made.clone());
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_texts_are_kept_than_the_bound() {
        let texts = Texts::default();
        for shape in 0..3 * MOST {
            assert_eq!(*texts.get(shape, ToString::to_string), *shape.to_string());
            assert!(texts.0.lock().unwrap().len() <= MOST);
        }
        let again = texts.get(3 * MOST - 1, |_| panic!("the last one is kept"));
        assert_eq!(*again, *(3 * MOST - 1).to_string());
    }
}
