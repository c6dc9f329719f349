//! Leading part of an ordered read of which a later part failed.

/// The items before the first one that could not be read, and its error, if any.
#[derive(Clone, Debug)]
pub struct Prefix<T, E> {
    /// The items in order; not empty unless nothing was requested.
    pub items: Vec<T>,
    /// Error of the next item; `None` if all were read.
    pub error: Option<E>,
}

impl<T, E> Prefix<T, E> {
    /// Takes the results up to the first error. An error of the first item is returned, because nothing was read.
    pub fn of(results: impl IntoIterator<Item = Result<T, E>>) -> Result<Self, E> {
        let mut items = Vec::new();
        for result in results {
            match result {
                Ok(item) => items.push(item),
                Err(error) if items.is_empty() => return Err(error),
                Err(error) => return Ok(Self { items, error: Some(error) }),
            }
        }
        Ok(Self { items, error: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_before_the_first_error() {
        let of = |results: &[Result<u8, &'static str>]| {
            Prefix::of(results.iter().copied()).map(|prefix| (prefix.items, prefix.error))
        };
        assert_eq!(of(&[]), Ok((vec![], None)));
        assert_eq!(of(&[Ok(1), Ok(2)]), Ok((vec![1, 2], None)));
        assert_eq!(of(&[Ok(1), Err("late"), Ok(3)]), Ok((vec![1], Some("late"))));
        assert_eq!(of(&[Err("early"), Ok(2)]), Err("early"));
    }
}
