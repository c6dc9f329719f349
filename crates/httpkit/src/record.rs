//! Records of the interface: the description, the type and the value of a field stand in one place.

/// Defines a record together with the function that fills it from its sources. What several fields need is in the
/// function's braces.
#[macro_export]
macro_rules! record {
    (@result) => { Self };
    (@result $error:ty) => { Result<Self, $error> };
    (@filled $record:expr) => { $record };
    (@filled $record:expr, $error:ty) => { Ok::<_, $error>($record) };
    (
        $(#[$doc:meta])*
        $of_vis:vis fn $of:ident($($source:ident: $source_type:ty),*) $(-> Result<Self, $error:ty>)? {$($shared:tt)*}

        $(#[$about:meta])*
        $vis:vis struct $record:ident {
            $($(#[$attribute:meta])* $field_vis:vis $field:ident: $type:ty = $value:expr,)*
        }
    ) => {
        $(#[$about])*
        #[derive(serde::Serialize, utoipa::ToSchema)]
        $vis struct $record {
            $($(#[$attribute])* $field_vis $field: $type,)*
        }

        impl $record {
            $(#[$doc])*
            $of_vis fn $of($($source: $source_type),*) -> $crate::record!(@result $($error)?) {
                $($shared)*
                $crate::record!(@filled Self { $($field: $value,)* } $(, $error)?)
            }
        }
    };
}
