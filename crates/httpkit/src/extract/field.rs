//! Objects in requests and their fields. [`request!`](crate::request) declares an object; each field has a [`Rule`] or is one
//! of the kinds below.

use std::marker::PhantomData;

use payferry_domain::named::Named;
use serde_json::Value;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, Object, ObjectBuilder, OneOfBuilder, SchemaType, Type,
};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::rule::{self, one_of};
use super::{Fault, Fields, Rule, read};

/// An object of a request, declared with [`request!`](crate::request).
pub trait RequestBody: Sized {
    /// Reads the fields. Records every fault; `None` if there is one.
    fn read(fields: &Fields<'_>) -> Option<Self>;

    /// Adds the descriptions of the fields.
    fn describe(object: ObjectBuilder) -> ObjectBuilder;

    /// Adds the schemas to which the descriptions refer.
    fn components(schemas: &mut Components);

    /// Names of the fields.
    fn names() -> Vec<&'static str>;
}

/// Named schemas.
pub type Components = Vec<(String, RefOr<Schema>)>;

/// A field of an object in a request.
pub trait Field: Sized {
    /// Type of its value.
    type Value;
    /// True if the field must be present.
    const IS_REQUIRED: bool = false;

    /// Reads the field. Records its faults; may return `None` if there is one.
    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<Self::Value>;

    /// Describes the field.
    fn schema(&self) -> RefOr<Schema>;

    /// Adds the schemas to which the description refers.
    fn components(&self, _: &mut Components) {}

    /// Adds an example to the description.
    fn example(self, example: impl Into<Value>) -> Example<Self> {
        Example(self, example.into())
    }
}

/// Declares an object of requests: a struct, its reader and its schema. Each field has a [`Field`] after its type.
///
/// `struct Order: Debug, Clone` derives these traits. `..base: Base` before the fields includes those of another
/// declared object. `refusing(fault)` after the name refuses other fields, each with `fault(name)`; else they are ignored.
#[macro_export]
macro_rules! request {
    (
        $(#[doc = $about:literal])*
        $vis:vis struct $name:ident $(: $($derived:ident),+)? $(refusing($refuse:path))? {
            $(.. $base_vis:vis $base:ident: $base_type:ty,)*
            $($(#[doc = $doc:literal])* $field_vis:vis $field:ident: $type:ty = $rule:expr,)*
        }
    ) => {
        $(#[doc = $about])*
        $(#[derive($($derived),+)])?
        #[allow(dead_code, reason = "some fields are only checked")]
        $vis struct $name {
            $(
                #[allow(missing_docs, reason = "the type says it")]
                $base_vis $base: $base_type,
            )*
            $($(#[doc = $doc])* #[allow(missing_docs, reason = "the rule says it")] $field_vis $field: $type,)*
        }

        impl $crate::extract::RequestBody for $name {
            fn read(fields: &$crate::extract::Fields<'_>) -> Option<Self> {
                $(fields.only(&<Self as $crate::extract::RequestBody>::names(), $refuse);)?
                $(let $field = $crate::extract::Field::read(&$rule, $crate::extract::bare(stringify!($field)), fields);)*
                $(let $base = <$base_type as $crate::extract::RequestBody>::read(fields);)*
                Some(Self { $($base: $base?,)* $($field: $field?,)* })
            }

            fn describe(object: utoipa::openapi::schema::ObjectBuilder) -> utoipa::openapi::schema::ObjectBuilder {
                $(let object = <$base_type as $crate::extract::RequestBody>::describe(object);)*
                $(let object = $crate::extract::describe::<_, $type>(
                    object, $crate::extract::bare(stringify!($field)), &$rule, &[$($doc),*],
                );)*
                $(let _: fn(&str) -> $crate::Fault = $refuse; let object = $crate::extract::closed(object);)?
                object
            }

            fn components(schemas: &mut $crate::extract::Components) {
                $(<$base_type as $crate::extract::RequestBody>::components(schemas);)*
                $($crate::extract::components::<_, $type>(&$rule, schemas);)*
                let _ = schemas;
            }

            fn names() -> Vec<&'static str> {
                let own: &[&'static str] = &[$($crate::extract::bare(stringify!($field))),*];
                #[allow(unused_mut, reason = "it is extended if there is a base")]
                let mut names = own.to_vec();
                $(names.extend(<$base_type as $crate::extract::RequestBody>::names());)*
                names
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                $crate::extract::schema_of::<Self>(&[$($about),*])
            }
        }

        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn schemas(schemas: &mut $crate::extract::Components) {
                <Self as $crate::extract::RequestBody>::components(schemas);
            }
        }
    };
}

/// The name of a field whose identifier may be raw.
pub fn bare(identifier: &'static str) -> &'static str {
    identifier.trim_start_matches("r#")
}

/// Adds the schemas to which the description of a field refers.
pub fn components<F: Field<Value = V>, V>(field: &F, schemas: &mut Components) {
    field.components(schemas);
}

/// Adds the description of a field.
pub fn describe<F: Field<Value = V>, V>(object: ObjectBuilder, name: &str, field: &F, docs: &[&str]) -> ObjectBuilder {
    let object = object.property(name, described(field.schema(), docs));
    if F::IS_REQUIRED { object.required(name) } else { object }
}

/// Describes that the object has no other fields.
pub fn closed(object: ObjectBuilder) -> ObjectBuilder {
    object.additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
}

/// The schema of a declared object.
pub fn schema_of<T: RequestBody>(docs: &[&str]) -> RefOr<Schema> {
    described(T::describe(ObjectBuilder::new().schema_type(Type::Object)).build().into(), docs)
}

/// Adds a documentation comment.
fn described(mut schema: RefOr<Schema>, docs: &[&str]) -> RefOr<Schema> {
    let text = docs.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n");
    if text.is_empty() {
        return schema;
    }
    match &mut schema {
        RefOr::Ref(reference) => reference.description = text,
        RefOr::T(Schema::Object(object)) => object.description = Some(text),
        RefOr::T(Schema::Array(array)) => array.description = Some(text),
        RefOr::T(Schema::OneOf(one_of)) => one_of.description = Some(text),
        RefOr::T(_) => {}
    }
    schema
}

/// A field with an example.
pub struct Example<F>(F, Value);

impl<F: Field> Field for Example<F> {
    type Value = F::Value;
    const IS_REQUIRED: bool = F::IS_REQUIRED;

    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<F::Value> {
        self.0.read(name, fields)
    }

    fn schema(&self) -> RefOr<Schema> {
        let mut schema = self.0.schema();
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.example = Some(self.1.clone());
        }
        schema
    }

    fn components(&self, schemas: &mut Components) {
        self.0.components(schemas);
    }
}

/// A field that must be present.
pub struct Required<T>(pub(super) Rule<T>);

/// A required field.
pub fn required<T>(rule: Rule<T>) -> Required<T> {
    Required(rule)
}

impl<T> Field for Required<T> {
    type Value = T;
    const IS_REQUIRED: bool = true;

    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<T> {
        fields.required(name, self.0.read)
    }

    fn schema(&self) -> RefOr<Schema> {
        (self.0.schema)().build().into()
    }
}

/// A field that may be missing or null.
pub struct Optional<T>(Rule<T>);

/// An optional field.
pub fn optional<T>(rule: Rule<T>) -> Optional<T> {
    Optional(rule)
}

impl<T> Field for Optional<T> {
    type Value = Option<T>;

    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<Option<T>> {
        Some(fields.optional(name, self.0.read))
    }

    fn schema(&self) -> RefOr<Schema> {
        nullable((self.0.schema)()).into()
    }
}

/// A field that may be missing or null, with a default.
pub struct OrDefault<T>(Rule<T>, T);

/// An optional field with a default.
pub fn or_default<T: Clone + Into<Value>>(rule: Rule<T>, default: T) -> OrDefault<T> {
    OrDefault(rule, default)
}

impl<T: Clone + Into<Value>> Field for OrDefault<T> {
    type Value = T;

    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<T> {
        Some(fields.optional(name, self.0.read).unwrap_or_else(|| self.1.clone()))
    }

    fn schema(&self) -> RefOr<Schema> {
        let mut object = nullable((self.0.schema)());
        object.default = Some(self.1.clone().into());
        object.into()
    }
}

/// A required object.
pub struct RequiredObject<T>(PhantomData<T>);

/// A required object.
pub fn object<T: RequestBody + ToSchema>() -> RequiredObject<T> {
    RequiredObject(PhantomData)
}

impl<T: RequestBody + ToSchema> Field for RequiredObject<T> {
    type Value = T;
    const IS_REQUIRED: bool = true;

    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<T> {
        fields.object(name, T::read)
    }

    fn schema(&self) -> RefOr<Schema> {
        reference::<T>()
    }

    fn components(&self, schemas: &mut Components) {
        component::<T>(schemas);
    }
}

/// An object that may be missing or null.
pub struct OptionalObject<T>(PhantomData<T>);

/// An optional object.
pub fn optional_object<T: RequestBody + ToSchema>() -> OptionalObject<T> {
    OptionalObject(PhantomData)
}

impl<T: RequestBody + ToSchema> Field for OptionalObject<T> {
    type Value = Option<T>;

    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<Option<T>> {
        Some(fields.optional_object(name, T::read))
    }

    fn schema(&self) -> RefOr<Schema> {
        let null = ObjectBuilder::new().schema_type(Type::Null);
        RefOr::T(OneOfBuilder::new().item(null).item(reference::<T>()).build().into())
    }

    fn components(&self, schemas: &mut Components) {
        component::<T>(schemas);
    }
}

/// A required list of 1 to `MAX` objects.
pub struct List<T, const MAX: usize>(PhantomData<T>);

/// A required list of 1 to `MAX` objects.
pub fn list<T: RequestBody + ToSchema, const MAX: usize>() -> List<T, MAX> {
    List(PhantomData)
}

impl<T: RequestBody + ToSchema, const MAX: usize> Field for List<T, MAX> {
    type Value = Vec<T>;
    const IS_REQUIRED: bool = true;

    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<Vec<T>> {
        fields.objects(name, MAX, T::read)
    }

    fn schema(&self) -> RefOr<Schema> {
        ArrayBuilder::new().items(reference::<T>()).min_items(Some(1)).max_items(Some(MAX)).build().into()
    }

    fn components(&self, schemas: &mut Components) {
        component::<T>(schemas);
    }
}

/// A list of up to `MAX` objects that may be missing or null.
pub struct OptionalList<T, const MAX: usize>(PhantomData<T>);

/// An optional list of up to `MAX` objects. A missing one is empty.
pub fn optional_list<T: RequestBody + ToSchema, const MAX: usize>() -> OptionalList<T, MAX> {
    OptionalList(PhantomData)
}

impl<T: RequestBody + ToSchema, const MAX: usize> Field for OptionalList<T, MAX> {
    type Value = Vec<T>;

    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<Vec<T>> {
        Some(fields.optional_objects(name, MAX, T::read).unwrap_or_default())
    }

    fn schema(&self) -> RefOr<Schema> {
        let list = ArrayBuilder::new().schema_type(SchemaType::from_iter([Type::Array, Type::Null]));
        list.items(reference::<T>()).max_items(Some(MAX)).build().into()
    }

    fn components(&self, schemas: &mut Components) {
        component::<T>(schemas);
    }
}

/// A required list of names of an enum, not empty.
pub struct Names<T>(PhantomData<T>);

/// A required list of names of an enum, not empty.
pub fn names<T: Named>() -> Names<T> {
    Names(PhantomData)
}

impl<T: Named> Field for Names<T> {
    type Value = Vec<T>;
    const IS_REQUIRED: bool = true;

    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<Vec<T>> {
        fields.required(name, |value| {
            let list = value.as_array().ok_or_else(|| Fault::new("wrong_type", "must be a list of strings"))?;
            if list.is_empty() {
                return Err(Fault::new("empty", "must not be empty"));
            }
            list.iter().map(read::name).collect()
        })
    }

    fn schema(&self) -> RefOr<Schema> {
        ArrayBuilder::new().items((rule::name::<T>().schema)()).min_items(Some(1)).build().into()
    }
}

/// A field that must be missing, null or, if `allows_blank`, empty.
pub struct Refused {
    fault: fn() -> Fault,
    allows_blank: bool,
}

/// A field that is refused with this fault.
pub fn refused(fault: fn() -> Fault) -> Refused {
    Refused { fault, allows_blank: false }
}

/// A field that is refused with this fault unless it is an empty text or list.
pub fn blank(fault: fn() -> Fault) -> Refused {
    Refused { fault, allows_blank: true }
}

impl Field for Refused {
    type Value = ();

    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<()> {
        if fields.has(name) && !(self.allows_blank && fields.is_blank(name)) {
            fields.fault(name, (self.fault)());
        }
        Some(())
    }

    fn schema(&self) -> RefOr<Schema> {
        let object = ObjectBuilder::new();
        if !self.allows_blank {
            return object.schema_type(Type::Null).build().into();
        }
        let empty = object.schema_type(SchemaType::from_iter([Type::Null, Type::String])).pattern(Some(r"^\s*$"));
        let no_items = ArrayBuilder::new().items(ObjectBuilder::new().schema_type(Type::Null)).max_items(Some(0));
        RefOr::T(OneOfBuilder::new().item(empty).item(no_items).build().into())
    }
}

/// A required field with one allowed value.
pub struct Constant(&'static str);

/// A required field with one allowed value.
pub fn constant(text: &'static str) -> Constant {
    Constant(text)
}

impl Field for Constant {
    type Value = ();
    const IS_REQUIRED: bool = true;

    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<()> {
        fields.required(name, |value| {
            let is_same = read::string(value)? == self.0;
            is_same.then_some(()).ok_or_else(|| Fault::new("unknown_value", format!("must be {}", self.0)))
        })
    }

    fn schema(&self) -> RefOr<Schema> {
        one_of([self.0]).build().into()
    }
}

fn reference<T: ToSchema>() -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(T::name()))
}

fn component<T: RequestBody + ToSchema>(schemas: &mut Components) {
    T::components(schemas);
    schemas.push((T::name().into_owned(), <T as PartialSchema>::schema()));
}

/// Allows null.
fn nullable(object: ObjectBuilder) -> Object {
    let mut object = object.build();
    if let SchemaType::Type(kind) = &object.schema_type {
        object.schema_type = SchemaType::from_iter([kind.clone(), Type::Null]);
    }
    if let Some(values) = &mut object.enum_values {
        values.push(Value::Null);
    }
    object
}

#[cfg(test)]
mod tests;
