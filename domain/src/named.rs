//! Macro for enums of the interface: each variant has one name in responses, webhooks, and the database.

/// Defines an enum whose variants have one name each.
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
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Name in responses, webhooks, and the database.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
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
pub(crate) use named;
