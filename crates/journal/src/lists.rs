//! Lists of texts as parameters of a statement: one statement for any length.

use sea_orm::{DbBackend, DbErr, Value};

/// Query for the texts of a list that is bound as parameter `$number`. [`text_list`] makes its value.
pub fn texts_of(backend: DbBackend, number: usize) -> String {
    match backend {
        DbBackend::Postgres => format!("SELECT jsonb_array_elements_text(${number}::jsonb)"),
        _ => format!("SELECT value FROM json_each(${number})"),
    }
}

/// Value of a parameter that [`texts_of`] reads.
pub fn text_list(texts: impl IntoIterator<Item = impl serde::Serialize>) -> Result<Value, DbErr> {
    let texts: Vec<_> = texts.into_iter().collect();
    serde_json::to_string(&texts).map(Value::from).map_err(|error| DbErr::Json(error.to_string()))
}
