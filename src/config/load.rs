//! Builds the configuration from its layers and attributes each error to its layer.
//!
//! Every key that a layer sets is applied separately to the last valid configuration. An error therefore names the file
//! and line, or the variable, together with the expected values.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::Config;
use super::values::expected;

/// The embedded defaults.
pub const DEFAULTS: &str = include_str!("default.toml");
/// Prefix of environment variables that are configuration, with `__` between section and key.
pub const ENV_PREFIX: &str = "PAYFERRY_";
const ENV_SEPARATOR: &str = "__";
/// Keys of earlier versions. They have no effect and cause a warning.
const RETIRED: [&str; 1] = ["payments.bookkeeping"];
/// Key that `server.trusted_proxies` replaces. It still has its effect and causes a warning.
const BEHIND_PROXY: &str = "server.behind_proxy";

/// Configuration error: location, key and expected value.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}: not valid TOML: {message}", location)]
    Syntax {
        /// File and line.
        location: Location,
        /// Message of the parser.
        message: String,
    },
    /// The key does not exist.
    #[error("{location}: there is no key `{key}`; expected one of {known}")]
    UnknownKey {
        /// Location of the key.
        location: Location,
        /// The key as written.
        key: String,
        /// Keys that exist in this section.
        known: String,
    },
    /// The value is not valid for its key.
    #[error("{location}: `{key}` is {found}, expected {expected}")]
    BadValue {
        /// Location of the key.
        location: Location,
        /// The key.
        key: String,
        /// The value as written.
        found: String,
        /// Description of valid values.
        expected: &'static str,
    },
}

/// Location of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file and a line number.
    File(PathBuf, usize),
    /// An environment variable.
    Env(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Env(name) => f.write_str(name),
        }
    }
}

struct Setting {
    location: Location,
    key: Vec<String>,
    value: Value,
}

impl Default for Config {
    fn default() -> Self {
        defaults().try_into().expect("the embedded defaults are complete; a test reads them")
    }
}

impl Config {
    /// Applies the defaults, then `file` if given, then the variables in `env` that begin with [`ENV_PREFIX`].
    pub fn load(file: Option<&Path>, env: impl IntoIterator<Item = (String, String)>) -> Result<Self, ConfigError> {
        let mut table = defaults();
        let mut config = Self::default();
        let mut settings = match file {
            Some(path) => from_file(path)?,
            None => Vec::new(),
        };
        settings.extend(from_env(env));
        let (mut warnings, mut is_behind_proxy) = (Vec::new(), false);
        for Setting { location, key, value } in settings {
            let name = key.join(".");
            if RETIRED.contains(&name.as_str()) {
                warnings.push(format!("{location}: `{name}` no longer exists and has no effect; remove it"));
                continue;
            }
            if name == BEHIND_PROXY {
                let value = match value {
                    Value::String(text) => typed(&text, &Value::Boolean(false)),
                    value => value,
                };
                let (found, expected) = (shown(&key, &value), expected(&name));
                let bad = || ConfigError::BadValue { location: location.clone(), key: name.clone(), found, expected };
                is_behind_proxy = value.as_bool().ok_or_else(bad)?;
                warnings.push(format!(
                    "{location}: `{name}` will be removed: `true` trusts every peer; set `server.trusted_proxies` to the \
                     addresses of your proxies instead"
                ));
                continue;
            }
            let found = shown(&key, &value);
            let slot = match slot(&mut table, &key) {
                Ok(slot) => slot,
                Err(NoSlot::Section) => {
                    return Err(ConfigError::BadValue { location, key: name, found, expected: "a section" });
                }
                Err(NoSlot::Unknown(known)) => return Err(ConfigError::UnknownKey { location, key: name, known }),
            };
            let (location, value) = match (location, value) {
                // Environment variables are text: they are parsed as the type of the default.
                (Location::Env(variable), Value::String(text)) => (Location::Env(variable), typed(&text, slot)),
                other => other,
            };
            let found = shown(&key, &value);
            let bad = || ConfigError::BadValue { location, key: name.clone(), found, expected: expected(&name) };
            *slot = value;
            config = table.clone().try_into().map_err(|_| bad())?;
        }
        config.warnings = warnings;
        config.server.is_behind_proxy = is_behind_proxy;
        Ok(config)
    }
}

fn defaults() -> Table {
    DEFAULTS.parse().expect("the embedded defaults are TOML; a test reads them")
}

/// Formats a value for an error message, unless it may contain a secret.
fn shown(key: &[String], value: &Value) -> String {
    if key.last().is_some_and(|last| ["url", "urls", "remote_url", "endpoints"].contains(&last.as_str())) {
        "not usable".to_owned()
    } else {
        value.to_string()
    }
}

fn typed(text: &str, like: &Value) -> Value {
    let parsed = match like {
        Value::String(_) => None,
        _ => format!("v = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("v")),
    };
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Reason why a key does not exist among the defaults.
enum NoSlot {
    /// The key names a section, not a value.
    Section,
    /// The key does not exist; carries the existing keys.
    Unknown(String),
}

/// Finds the value of a key among the defaults.
fn slot<'t>(table: &'t mut Table, key: &[String]) -> Result<&'t mut Value, NoSlot> {
    let [section, rest @ ..] = key else { return Err(NoSlot::Section) };
    if !table.contains_key(section) {
        return Err(NoSlot::Unknown(table.keys().map(String::as_str).collect::<Vec<_>>().join(", ")));
    }
    let value = &mut table[section];
    match value {
        Value::Table(inner) => slot(inner, rest),
        leaf if rest.is_empty() => Ok(leaf),
        _ => Err(NoSlot::Unknown("no keys below it".to_owned())),
    }
}

fn from_env(env: impl IntoIterator<Item = (String, String)>) -> Vec<Setting> {
    let mut settings: Vec<Setting> = env
        .into_iter()
        .filter_map(|(name, text)| {
            let path = name.strip_prefix(ENV_PREFIX)?;
            // A variable without a section belongs to a command-line option and is ignored here.
            path.contains(ENV_SEPARATOR).then_some(())?;
            let key = path.to_ascii_lowercase().split(ENV_SEPARATOR).map(str::to_owned).collect();
            Some(Setting { location: Location::Env(name), key, value: Value::String(text) })
        })
        .collect();
    settings.sort_by(|a, b| a.key.cmp(&b.key));
    settings
}

fn from_file(path: &Path) -> Result<Vec<Setting>, ConfigError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let at = |offset: usize| Location::File(path.to_owned(), text[..offset.min(text.len())].lines().count().max(1));
    let syntax = |error: toml::de::Error| ConfigError::Syntax {
        location: at(error.span().map_or(0, |span| span.start + 1)),
        message: error.message().to_owned(),
    };
    let spans = DeTable::parse(&text).map_err(syntax)?;
    let values: Table = text.parse().map_err(syntax)?;
    let mut settings = Vec::new();
    flatten(spans.get_ref(), &values, &mut Vec::new(), &mut |key, offset, value| {
        settings.push(Setting { location: at(offset + 1), key, value });
    });
    Ok(settings)
}

fn flatten(
    spans: &DeTable<'_>,
    values: &Table,
    path: &mut Vec<String>,
    found: &mut impl FnMut(Vec<String>, usize, Value),
) {
    for (name, span) in spans {
        let (offset, key): (usize, &str) = (Spanned::span(name).start, name.get_ref());
        let Some(value) = values.get(key) else { continue };
        path.push(key.to_owned());
        match (span.get_ref(), value) {
            (DeValue::Table(inner), Value::Table(table)) if !table.is_empty() => flatten(inner, table, path, found),
            // An empty section sets nothing.
            (_, Value::Table(_)) => {}
            _ => found(path.clone(), offset, value.clone()),
        }
        path.pop();
    }
}
