//! One connection, to SQLite or to PostgreSQL: the same statements run on both.
//!
//! Statements name their parameters `$1`, `$2`, … in the order of their first use, which both servers understand. Values
//! are integers, texts and bytes only.

#[cfg(feature = "postgres")]
use std::collections::HashMap;
use std::path::PathBuf;

use rusqlite::types::ValueRef;

use crate::error::PlaneError;

/// A parameter, or a column of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Value::Text(text.clone())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    /// Saturates: no counter reaches 2⁶³.
    fn from(number: u64) -> Self {
        Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Value::Bytes(bytes.to_vec())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// The parameters of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        &[$($crate::database::session::Value::from($value)),*][..]
    };
}
pub(crate) use values;

/// A row of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Row(Vec<Value>);

impl Row {
    pub(crate) fn number(&self, column: usize) -> Result<u64, PlaneError> {
        match self.0.get(column) {
            Some(Value::Int(number)) => u64::try_from(*number).map_err(|_| unexpected(column)),
            _ => Err(unexpected(column)),
        }
    }

    pub(crate) fn maybe_number(&self, column: usize) -> Result<Option<u64>, PlaneError> {
        match self.0.get(column) {
            Some(Value::Null) => Ok(None),
            _ => self.number(column).map(Some),
        }
    }

    pub(crate) fn text(&self, column: usize) -> Result<String, PlaneError> {
        match self.0.get(column) {
            Some(Value::Text(text)) => Ok(text.clone()),
            _ => Err(unexpected(column)),
        }
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<Vec<u8>, PlaneError> {
        match self.0.get(column) {
            Some(Value::Bytes(bytes)) => Ok(bytes.clone()),
            _ => Err(unexpected(column)),
        }
    }
}

fn unexpected(column: usize) -> PlaneError {
    PlaneError::Damaged(format!("column {column} of a row has an unexpected value"))
}

/// A connection.
pub(crate) enum Session {
    Sqlite {
        connection: rusqlite::Connection,
        path: PathBuf,
    },
    #[cfg(feature = "postgres")]
    Postgres {
        client: tokio_postgres::Client,
        statements: HashMap<String, tokio_postgres::Statement>,
    },
}

impl Session {
    /// Runs a statement; the number of rows that it changed.
    pub(crate) async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, PlaneError> {
        match self {
            Session::Sqlite { connection, path } => {
                let fail = |error| sqlite_failure(path, error);
                let mut statement = connection.prepare_cached(sql).map_err(fail)?;
                let changed =
                    statement.execute(rusqlite::params_from_iter(values)).map_err(fail)?;
                Ok(changed as u64)
            }
            #[cfg(feature = "postgres")]
            Session::Postgres { client, statements } => {
                let statement = prepare(client, statements, sql).await?;
                Ok(client.execute_raw(&statement, values.iter().map(parameter)).await?)
            }
        }
    }

    /// Runs a statement that answers rows.
    pub(crate) async fn query(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<Row>, PlaneError> {
        match self {
            Session::Sqlite { connection, path } => {
                let fail = |error| sqlite_failure(path, error);
                let mut statement = connection.prepare_cached(sql).map_err(fail)?;
                let columns = statement.column_count();
                let mut rows = statement.query(rusqlite::params_from_iter(values)).map_err(fail)?;
                let mut found = Vec::new();
                while let Some(row) = rows.next().map_err(fail)? {
                    let column = |column| row.get_ref(column).map(sqlite_value);
                    found.push(Row((0..columns)
                        .map(column)
                        .collect::<Result<_, _>>()
                        .map_err(fail)?));
                }
                Ok(found)
            }
            #[cfg(feature = "postgres")]
            Session::Postgres { client, statements } => {
                let statement = prepare(client, statements, sql).await?;
                let values: Vec<_> = values.iter().map(parameter).collect();
                let rows = client.query(&statement, &values).await?;
                rows.iter().map(postgres_row).collect()
            }
        }
    }

    /// The only row of an answer.
    pub(crate) async fn query_one(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Row, PlaneError> {
        let mut rows = self.query(sql, values).await?;
        rows.pop().ok_or_else(|| PlaneError::Damaged("a row is missing".to_owned()))
    }

    /// Runs statements without parameters.
    pub(crate) async fn batch(&mut self, sql: &str) -> Result<(), PlaneError> {
        match self {
            Session::Sqlite { connection, path } => {
                connection.execute_batch(sql).map_err(|error| sqlite_failure(path, error))
            }
            #[cfg(feature = "postgres")]
            Session::Postgres { client, .. } => Ok(client.batch_execute(sql).await?),
        }
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Session::Sqlite { .. } => false,
            #[cfg(feature = "postgres")]
            Session::Postgres { client, .. } => client.is_closed(),
        }
    }

    /// The statement that begins a transaction. SQLite has one writer: a transaction that will write takes the lock at
    /// once, and one that only reads does not take it.
    pub(crate) const fn begin(&self, writes: bool) -> &'static str {
        match self {
            Session::Sqlite { .. } if writes => "BEGIN IMMEDIATE",
            Session::Sqlite { .. } => "BEGIN",
            #[cfg(feature = "postgres")]
            Session::Postgres { .. } => "BEGIN",
        }
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(rusqlite::types::ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn sqlite_value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
        ValueRef::Null | ValueRef::Real(_) => Value::Null,
    }
}

fn sqlite_failure(path: &std::path::Path, error: rusqlite::Error) -> PlaneError {
    tidegate_data_dir::DataDirError::from_sqlite(path, error).into()
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::error::Error;

    use tokio_postgres::types::private::BytesMut;
    use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

    use super::{HashMap, PlaneError, Row, Value};

    pub(super) fn parameter(value: &Value) -> &(dyn ToSql + Sync) {
        value
    }

    pub(super) async fn prepare(
        client: &tokio_postgres::Client,
        statements: &mut HashMap<String, tokio_postgres::Statement>,
        sql: &str,
    ) -> Result<tokio_postgres::Statement, PlaneError> {
        if let Some(statement) = statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = client.prepare(sql).await?;
        statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    pub(super) fn postgres_row(row: &tokio_postgres::Row) -> Result<Row, PlaneError> {
        let value = |column: usize| -> Result<Value, PlaneError> {
            let of_type = row.columns().get(column).map(tokio_postgres::Column::type_);
            Ok(match of_type {
                Some(&Type::INT8) => row.try_get::<_, Option<i64>>(column)?.map(Value::Int),
                Some(&Type::TEXT) => row.try_get::<_, Option<String>>(column)?.map(Value::Text),
                Some(&Type::BYTEA) => row.try_get::<_, Option<Vec<u8>>>(column)?.map(Value::Bytes),
                _ => None,
            }
            .unwrap_or(Value::Null))
        };
        Ok(Row((0..row.len()).map(value).collect::<Result<_, _>>()?))
    }

    impl ToSql for Value {
        fn to_sql(
            &self,
            of_type: &Type,
            out: &mut BytesMut,
        ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
            match self {
                Value::Null => Ok(IsNull::Yes),
                Value::Int(number) => number.to_sql(of_type, out),
                Value::Text(text) => text.to_sql(of_type, out),
                Value::Bytes(bytes) => bytes.to_sql(of_type, out),
            }
        }

        fn accepts(of_type: &Type) -> bool {
            [Type::INT8, Type::TEXT, Type::BYTEA].contains(of_type)
        }

        to_sql_checked!();
    }

    impl From<tokio_postgres::Error> for PlaneError {
        fn from(error: tokio_postgres::Error) -> Self {
            let Some(database) = error.as_db_error() else {
                return PlaneError::Unavailable(format!("PostgreSQL: {error}"));
            };
            let text = format!("PostgreSQL: {}", database.message());
            match database.code().code().get(..2) {
                Some("53") => PlaneError::StorageFull(text),
                Some("XX") => PlaneError::Damaged(text),
                _ => PlaneError::Unavailable(text),
            }
        }
    }
}
#[cfg(feature = "postgres")]
use postgres::{parameter, postgres_row, prepare};
