//! Reads the fields of a JSON object and collects every fault under the field's full path.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Map, Value};

use crate::error::{ApiError, FieldError};

/// A fault of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Code for programs.
    pub code: Cow<'static, str>,
    /// Text for people, to be read after the field's name.
    pub message: Cow<'static, str>,
}

impl Fault {
    /// Creates a fault.
    pub fn new(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code: code.into(), message: message.into() }
    }

    pub(super) fn of(self, field: impl Into<String>) -> FieldError {
        FieldError::new(field, self.code, self.message)
    }
}

/// Every fault of a body.
type Faults = Rc<RefCell<Vec<FieldError>>>;

/// The fields of one object. Nested objects share the list of faults.
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: String,
    faults: Faults,
}

/// Field name for faults of a body that is itself a list.
const BODY: &str = "body";

impl<'a> Fields<'a> {
    /// The fields of the whole body, which must be an object.
    pub fn of_body(body: &'a Value) -> Result<Self, ApiError> {
        let object = body.as_object().ok_or_else(|| ApiError::MalformedJson("expected an object".to_owned()))?;
        Ok(Self { object, path: String::new(), faults: Rc::default() })
    }

    /// Reads a body that is one object or a list of 1 to `items_max` objects. Field names of a list begin with `[3].`.
    pub fn read_each<T>(
        body: &'a Value,
        items_max: usize,
        mut read: impl FnMut(&Fields<'a>) -> Option<T>,
    ) -> Result<Vec<T>, ApiError> {
        let Some(list) = body.as_array() else {
            let body = body
                .as_object()
                .ok_or_else(|| ApiError::MalformedJson("expected an object or a list of objects".to_owned()))?;
            let fields = Self { object: body, path: String::new(), faults: Rc::default() };
            let read = read(&fields);
            return fields.finish(read).map(|one| vec![one]);
        };
        bounded(list, 1, items_max).map_err(|fault| ApiError::Validation(vec![fault.of(BODY)]))?;
        let faults: Faults = Rc::default();
        let items = items(list, "", &faults, read);
        finish(&faults, items)
    }

    /// Reads a required field. Records a fault and returns `None` if it is missing or wrong.
    pub fn required<T>(&self, name: &str, read: impl FnOnce(&'a Value) -> Result<T, Fault>) -> Option<T> {
        if self.present(name).is_none() {
            self.fault(name, Fault::new("required", "is required"));
        }
        self.optional(name, read)
    }

    /// Reads a field that may be missing or null.
    pub fn optional<T>(&self, name: &str, read: impl FnOnce(&'a Value) -> Result<T, Fault>) -> Option<T> {
        read(self.present(name)?).map_err(|fault| self.fault(name, fault)).ok()
    }

    /// Reads a required object. `None`: it is missing or contains a fault.
    pub fn object<T>(&self, name: &str, read: impl FnOnce(&Fields<'a>) -> Option<T>) -> Option<T> {
        let object = self.required(name, as_object)?;
        read(&self.within(name, object))
    }

    /// Like [`Self::object`], for an object that may be missing or null.
    pub fn optional_object<T>(&self, name: &str, read: impl FnOnce(&Fields<'a>) -> Option<T>) -> Option<T> {
        let object = self.optional(name, as_object)?;
        read(&self.within(name, object))
    }

    /// Reads every item of a required list of 1 to `items_max` objects. `None`: the list or one of its items is wrong.
    pub fn objects<T>(
        &self,
        name: &str,
        items_max: usize,
        read: impl FnMut(&Fields<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let list = self.required(name, |value| list_of(value, 1, items_max))?;
        items(list, &self.name_of(name), &self.faults, read)
    }

    /// Reads every item of a list of up to `items_max` objects that may be missing or null. `None`: it is missing or
    /// null, or the list or one of its items is wrong.
    pub fn optional_objects<T>(
        &self,
        name: &str,
        items_max: usize,
        read: impl FnMut(&Fields<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let list = self.optional(name, |value| list_of(value, 0, items_max))?;
        items(list, &self.name_of(name), &self.faults, read)
    }

    /// The value of a field, if it is valid. Records no fault.
    pub fn valid<T>(&self, name: &str, read: impl FnOnce(&'a Value) -> Result<T, Fault>) -> Option<T> {
        read(self.present(name)?).ok()
    }

    /// Returns true if a field equals this text.
    pub fn is(&self, name: &str, text: &str) -> bool {
        self.present(name).is_some_and(|value| value == text)
    }

    /// Returns true if a field is present and not null.
    pub fn has(&self, name: &str) -> bool {
        self.present(name).is_some()
    }

    /// Returns true if a field is present but empty: a blank text, or an empty list.
    pub fn is_blank(&self, name: &str) -> bool {
        self.present(name).is_some_and(|value| match value {
            Value::String(text) => text.trim().is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        })
    }

    /// The names of the fields that are present.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.object.keys().map(String::as_str)
    }

    /// The items of a field that is a list, in their order.
    pub fn items(&self, name: &str) -> &'a [Value] {
        self.object.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Refuses every field that is not one of these.
    pub fn only(&self, known: &[&str], refuse: impl Fn(&str) -> Fault) {
        for name in self.names().filter(|name| !known.contains(name)) {
            self.fault(name, refuse(name));
        }
    }

    /// Records a fault of a field.
    pub fn fault(&self, name: &str, fault: Fault) {
        self.faults.borrow_mut().push(fault.of(self.name_of(name)));
    }

    /// Returns the value if there was no fault, else an error that names every fault.
    pub fn finish<T>(&self, read: Option<T>) -> Result<T, ApiError> {
        finish(&self.faults, read)
    }

    fn present(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn within(&self, name: &str, object: &'a Map<String, Value>) -> Fields<'a> {
        Fields { object, path: self.name_of(name), faults: Rc::clone(&self.faults) }
    }

    fn name_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

fn as_object(value: &Value) -> Result<&Map<String, Value>, Fault> {
    value.as_object().ok_or_else(|| Fault::new("wrong_type", "must be an object"))
}

fn list_of(value: &Value, items_min: usize, items_max: usize) -> Result<&[Value], Fault> {
    let list = value.as_array().ok_or_else(|| Fault::new("wrong_type", "must be a list"))?;
    bounded(list, items_min, items_max).map(|()| list.as_slice())
}

fn bounded(list: &[Value], items_min: usize, items_max: usize) -> Result<(), Fault> {
    if list.len() < items_min {
        return Err(Fault::new("empty", "must not be empty"));
    }
    if list.len() > items_max {
        return Err(Fault::new("too_many", format!("may have at most {items_max} items")));
    }
    Ok(())
}

/// Reads every item of the list called `name`.
fn items<'a, T>(
    list: &'a [Value],
    name: &str,
    faults: &Faults,
    mut read: impl FnMut(&Fields<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let read = |(index, item): (usize, &'a Value)| {
        let path = format!("{name}[{index}]");
        match as_object(item) {
            Ok(object) => read(&Fields { object, path, faults: Rc::clone(faults) }),
            Err(fault) => {
                faults.borrow_mut().push(fault.of(path));
                None
            }
        }
    };
    // Reads every item before failing, so that every fault is reported.
    let items: Vec<Option<T>> = list.iter().enumerate().map(read).collect();
    items.into_iter().collect()
}

fn finish<T>(faults: &Faults, read: Option<T>) -> Result<T, ApiError> {
    let faults = faults.take();
    if !faults.is_empty() {
        return Err(ApiError::Validation(faults));
    }
    read.ok_or_else(|| ApiError::internal("a field was refused without a recorded fault"))
}
