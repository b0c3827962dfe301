//! The record as JSON: one valid document, whatever happened.
//!
//! [`write()`] encodes the whole document before it hands over the first byte, so an encoding error can never leave half
//! a document behind, and nothing ever follows the closing brace but one newline. Counts keep all their digits. A
//! number that is not finite has no JSON form: a reading without one becomes absent with the reason, and any other
//! such field is `null`.
//!
//! [`parse`] is stricter than RFC 8259 asks: section 4 leaves repeated keys to the reader, which is how results of two
//! directions got lost in other tools, so a repeated key is an error here, named with the way to it. A newer schema is
//! refused by its number before its shape is looked at; unknown fields of a known schema are let pass, because fields
//! are only ever added within a schema.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::io;

use haul_stats::{Comparison, Reading, Value};
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};

use crate::error::ResultsError;
use crate::record::{CellFigure, Document, SCHEMA};

/// Writes the document, a newline, and nothing else.
pub fn write(document: &Document, mut out: impl io::Write) -> Result<(), ResultsError> {
    let mut text = serde_json::to_vec_pretty(finite(document).as_ref()).map_err(ResultsError::Encode)?;
    text.push(b'\n');
    out.write_all(&text).and_then(|()| out.flush()).map_err(ResultsError::Write)
}

/// Writes the document as the last of a file of events, one object a line: `{"event": "document", "document": …}`.
pub fn write_line(document: &Document, mut out: impl io::Write) -> Result<(), ResultsError> {
    #[derive(serde::Serialize)]
    struct Last<'a> {
        event: &'static str,
        document: &'a Document,
    }
    let document = finite(document);
    let mut text = serde_json::to_vec(&Last { event: "document", document: document.as_ref() })
        .map_err(ResultsError::Encode)?;
    text.push(b'\n');
    out.write_all(&text).and_then(|()| out.flush()).map_err(ResultsError::Write)
}

/// Reads a document back.
pub fn parse(text: &str) -> Result<Document, ResultsError> {
    let tree = strict(text)?;
    let stamp = tree.get("haul").ok_or(ResultsError::NotHaul { missing: "it has no 'haul'" })?;
    let found = stamp
        .get("schema")
        .and_then(Json::as_u64)
        .ok_or(ResultsError::NotHaul { missing: "its 'haul.schema' is no number" })?;
    if found > u64::from(SCHEMA) {
        let version = stamp.get("version").and_then(Json::as_str).unwrap_or("of unknown version").to_owned();
        return Err(ResultsError::NewerSchema { found, known: SCHEMA, version });
    }
    // From the text and not from the tree: only the former knows the line and column of what does not fit.
    serde_json::from_str(text).map_err(|source| ResultsError::Shape { schema: found, source })
}

/// The document with every reading and interval finite or absent.
fn finite(document: &Document) -> Cow<'_, Document> {
    let sound = |reading: &Reading| !matches!(reading.value, Some(Value::Real(value)) if !value.is_finite());
    let bounded = |comparison: &Comparison| {
        comparison.interval_pct.is_none_or(|ends| ends.iter().all(|end| end.is_finite()))
    };
    let known =
        |figure: &CellFigure| figure.interval.is_none_or(|ends| ends.iter().all(|end| end.is_finite()));
    if document.runs.iter().all(|run| run.readings.iter().all(sound))
        && document.comparisons.iter().all(bounded)
        && document.cells.iter().all(known)
    {
        return Cow::Borrowed(document);
    }
    let mut document = document.clone();
    for reading in document.runs.iter_mut().flat_map(|run| &mut run.readings) {
        if !sound(reading) {
            reading.value = None;
            reading.reason.get_or_insert_with(|| "not a finite number".to_owned());
        }
    }
    for comparison in document.comparisons.iter_mut().filter(|comparison| !bounded(comparison)) {
        comparison.interval_pct = None;
    }
    for figure in document.cells.iter_mut().filter(|figure| !known(figure)) {
        figure.interval = None;
    }
    Cow::Owned(document)
}

/// Reads any JSON, and refuses an object that names a key twice.
fn strict(text: &str) -> Result<Json, ResultsError> {
    let duplicate = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    let tree = Strict { path: &Path::Root, duplicate: &duplicate }
        .deserialize(&mut reader)
        .and_then(|tree| reader.end().map(|()| tree));
    tree.map_err(|error| match duplicate.into_inner() {
        Some(path) => ResultsError::DuplicateKey { path },
        None => ResultsError::Syntax(error),
    })
}

/// The way to a value, kept on the stack while it is read.
enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

struct Strict<'a> {
    path: &'a Path<'a>,
    duplicate: &'a RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Json;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        loop {
            let path = Path::Index(self.path, values.len());
            match list.next_element_seed(Strict { path: &path, duplicate: self.duplicate })? {
                Some(value) => values.push(value),
                None => return Ok(Json::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Json, A::Error> {
        let mut values = Map::new();
        while let Some(key) = object.next_key::<String>()? {
            let path = Path::Key(self.path, &key);
            if values.contains_key(&key) {
                self.duplicate.replace(Some(path.to_string()));
                return Err(A::Error::custom("duplicate key"));
            }
            let value = object.next_value_seed(Strict { path: &path, duplicate: self.duplicate })?;
            values.insert(key, value);
        }
        Ok(Json::Object(values))
    }
}
