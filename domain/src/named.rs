//! Macros for enums of the interface, whose variants have one name in responses, webhooks, and the database, and for sets of
//! them.

use std::str::FromStr;

/// An enum with one name per variant.
pub trait Named: Copy + FromStr + 'static {
    /// Every variant, in the order of declaration.
    const ALL: &'static [Self];

    /// Name in responses, webhooks, metrics, and the database.
    fn name(self) -> &'static str;
}

/// Defines an enum with one name per variant, used by `as_str`, `Display`, `FromStr` and serde. The text after the name of
/// the enum completes the error of an unknown name.
#[macro_export]
macro_rules! named {
    ($(#[$doc:meta])* $name:ident, $expected:literal { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// Every variant, in the order of declaration.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// Name in responses, webhooks, metrics, and the database.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl $crate::named::Named for $name {
            const ALL: &'static [Self] = &Self::ALL;

            fn name(self) -> &'static str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::money::UnknownName;
            fn from_str(text: &str) -> Result<Self, $crate::money::UnknownName> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err($crate::money::UnknownName { expected: $expected }),
                }
            }
        }
    };
}

/// Defines a set of such names as bits of an integer, serialised as a list. Reading skips unknown names if
/// `skips_unknown` is true; otherwise they are errors.
macro_rules! named_set {
    ($(#[$doc:meta])* $set:ident($bits:ident) of $name:ident, skips_unknown: $skips:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $set($bits);

        impl $set {
            /// The empty set.
            pub const NONE: Self = Self(0);

            const fn bit(one: $name) -> $bits {
                1 << one as $bits
            }

            /// Returns true if the set contains `one`.
            pub const fn contains(self, one: $name) -> bool {
                self.0 & Self::bit(one) != 0
            }

            /// Returns the set with `one`.
            #[must_use]
            pub const fn with(self, one: $name) -> Self {
                Self(self.0 | Self::bit(one))
            }

            /// Returns the set without `one`.
            #[must_use]
            pub const fn without(self, one: $name) -> Self {
                Self(self.0 & !Self::bit(one))
            }

            /// Returns the set with or without `one`.
            #[must_use]
            pub const fn set(self, one: $name, present: bool) -> Self {
                if present { self.with(one) } else { self.without(one) }
            }

            /// Returns the union of both sets.
            #[must_use]
            pub const fn and(self, others: Self) -> Self {
                Self(self.0 | others.0)
            }

            /// Returns true if the set is empty.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Iterates over the set in the order of declaration.
            pub fn iter(self) -> impl Iterator<Item = $name> {
                $name::ALL.into_iter().filter(move |one| self.contains(*one))
            }
        }

        impl FromIterator<$name> for $set {
            fn from_iter<I: IntoIterator<Item = $name>>(all: I) -> Self {
                all.into_iter().fold(Self::NONE, Self::with)
            }
        }

        impl std::fmt::Debug for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_set().entries(self.iter()).finish()
            }
        }

        impl serde::Serialize for $set {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.iter())
            }
        }

        impl<'de> serde::Deserialize<'de> for $set {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let names = Vec::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                let known = names.iter().map(|name| name.parse::<$name>());
                known.filter(|name| !$skips || name.is_ok()).collect::<Result<_, _>>().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub use named;
pub(crate) use named_set;
