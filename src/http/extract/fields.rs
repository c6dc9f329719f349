//! Reads the fields of a JSON object and remembers every fault, under its whole name.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Map, Value};

use crate::http::error::{ApiError, FieldError};

/// What is wrong with one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// For programs.
    pub code: Cow<'static, str>,
    /// For people, to be read after the field's name.
    pub message: Cow<'static, str>,
}

impl Fault {
    /// A fault.
    pub fn new(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// The fields of one object. Objects within share the list of faults.
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: String,
    faults: Rc<RefCell<Vec<FieldError>>>,
}

impl<'a> Fields<'a> {
    /// Of the whole body, which has to be an object.
    pub fn of_body(body: &'a Value) -> Result<Self, ApiError> {
        let object = body.as_object().ok_or_else(|| ApiError::MalformedJson("expected an object".to_owned()))?;
        Ok(Self { object, path: String::new(), faults: Rc::default() })
    }

    /// The value of a field that has to be there. `None`: it is missing or wrong, which is remembered.
    pub fn required<T>(&self, name: &str, read: impl FnOnce(&'a Value) -> Result<T, Fault>) -> Option<T> {
        if self.present(name).is_none() {
            self.fault(name, Fault::new("required", "is required"));
        }
        self.optional(name, read)
    }

    /// The value of a field that may be missing or null.
    pub fn optional<T>(&self, name: &str, read: impl FnOnce(&'a Value) -> Result<T, Fault>) -> Option<T> {
        read(self.present(name)?).map_err(|fault| self.fault(name, fault)).ok()
    }

    /// Reads every item of a list of 1 to `items_max` objects. `None`: one of them was wrong, or the list was.
    pub fn objects<T>(
        &self,
        name: &str,
        items_max: usize,
        mut read: impl FnMut(&Fields<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let list = self.required(name, |value| match value.as_array() {
            None => Err(Fault::new("wrong_type", "must be a list")),
            Some(list) if list.is_empty() => Err(Fault::new("empty", "must not be empty")),
            Some(list) if list.len() > items_max => {
                Err(Fault::new("too_many", format!("may have at most {items_max} items")))
            }
            Some(list) => Ok(list),
        })?;
        let items: Vec<Option<T>> = list
            .iter()
            .enumerate()
            .map(|(index, item)| {
                let name = format!("{name}[{index}]");
                let Some(object) = item.as_object() else {
                    self.fault(&name, Fault::new("wrong_type", "must be an object"));
                    return None;
                };
                read(&Fields { object, path: self.name_of(&name), faults: Rc::clone(&self.faults) })
            })
            .collect();
        items.into_iter().collect()
    }

    /// The names of the fields that are there.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.object.keys().map(String::as_str)
    }

    /// Remembers a fault of a field.
    pub fn fault(&self, name: &str, fault: Fault) {
        self.faults.borrow_mut().push(FieldError {
            field: self.name_of(name),
            code: fault.code,
            message: fault.message.into_owned(),
        });
    }

    /// The error that names every fault, if there is one.
    pub fn faults(&self) -> Result<(), ApiError> {
        let faults = self.faults.borrow();
        if faults.is_empty() { Ok(()) } else { Err(ApiError::Validation(faults.clone())) }
    }

    /// What was read, if all of it was right; else the error that names every fault.
    pub fn finish<T>(&self, read: Option<T>) -> Result<T, ApiError> {
        self.faults()?;
        read.ok_or_else(|| ApiError::internal("a field was refused and no fault remembered"))
    }

    fn present(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn name_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}
