//! Tables and rows: what GlueSQL asks of a storage.
//!
//! A schema and a row are GlueSQL's own types as postcard writes them, so another version of
//! GlueSQL may not read them.

use crate::connection::{Connection, damaged, failed, storage};
use crate::keys;
use crate::ranges::{self, primary_key};
use gluesql_core::ast::IndexOperator;
use gluesql_core::data::{Key, Schema, Value};
use gluesql_core::error::{AlterError, AlterTableError, Error, Result, ValidateError};
use gluesql_core::plan::StatementPlan;
use gluesql_core::planner::{
    fetch_schema_map, plan_aggregate, plan_hash_join, plan_primary_key, plan_schemaless, validate,
};
use gluesql_core::store::{
    AlterTable, CustomFunction, CustomFunctionMut, Index, IndexMut, Metadata, Planner, RowIter,
    Store, StoreMut,
};
use siftdb::Iter;
use std::collections::BTreeSet;

/// The entries of an iterator, as rows of `table`.
fn rows<'a>(
    table: &str,
    entries: impl Iterator<Item = <Iter as Iterator>::Item> + 'a,
) -> RowIter<'a> {
    let table = table.to_owned();
    Box::new(entries.map(move |entry| row(&table, &entry.map_err(failed)?.1)))
}

fn row(table: &str, bytes: &[u8]) -> Result<(Key, Vec<Value>)> {
    postcard::from_bytes(bytes).map_err(|_| damaged(&format!("a row of the table {table}")))
}

fn schema(bytes: &[u8]) -> Result<Schema> {
    postcard::from_bytes(bytes).map_err(|_| damaged("a schema"))
}

fn bytes<T: serde::Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|error| storage(error.to_string()))
}

impl Store for Connection {
    fn fetch_schema(&self, table: &str) -> Result<Option<Schema>> {
        self.get(&keys::of_table(table))?.map(|bytes| schema(&bytes)).transpose()
    }

    fn fetch_all_schemas(&self) -> Result<Vec<Schema>> {
        let all = self.prefix(&keys::of_all_tables());
        all.map(|entry| schema(&entry.map_err(failed)?.1)).collect()
    }

    fn fetch_data(&self, table: &str, key: &Key) -> Result<Option<Vec<Value>>> {
        let found = self.get(&keys::of_row(table, key))?;
        found.map(|bytes| Ok(row(table, &bytes)?.1)).transpose()
    }

    fn scan_data<'a>(&'a self, table: &str) -> Result<RowIter<'a>> {
        Ok(rows(table, self.prefix(&keys::of_rows(table))))
    }
}

impl StoreMut for Connection {
    fn insert_schema(&mut self, new: &Schema) -> Result<()> {
        let old = self.fetch_schema(&new.table_name)?;
        if old.is_some_and(|old| primary_key(&old).is_none()) && primary_key(new).is_some() {
            // Its rows have row numbers for keys.
            return Err(storage("only CREATE TABLE can declare a primary key"));
        }
        let value = bytes(new)?;
        self.write(|transaction| transaction.put(keys::of_table(&new.table_name), value))
    }

    fn delete_schema(&mut self, table: &str) -> Result<()> {
        self.write(|transaction| {
            transaction.delete(keys::of_table(table))?;
            transaction.delete_prefix(keys::of_rows(table))
        })
    }

    fn append_data(&mut self, table: &str, rows: Vec<Vec<Value>>) -> Result<()> {
        let numbers = self.database().row_numbers(rows.len() as u64)?;
        self.insert_data(table, numbers.map(Key::U64).zip(rows).collect())
    }

    fn insert_data(&mut self, table: &str, rows: Vec<(Key, Vec<Value>)>) -> Result<()> {
        let mut entries = Vec::new();
        let mut seen = BTreeSet::new();
        for row in rows {
            let key = keys::of_row(table, &row.0);
            // GlueSQL compares new rows with old ones, but not with each other.
            if !seen.insert(key.clone()) {
                return Err(ValidateError::DuplicateEntryOnPrimaryKeyField(row.0).into());
            }
            entries.push((key, bytes(&row)?));
        }
        self.write(|transaction| {
            entries.iter().try_for_each(|(key, value)| transaction.put(key, value))
        })
    }

    fn delete_data(&mut self, table: &str, keys: Vec<Key>) -> Result<()> {
        self.write(|transaction| {
            keys.iter().try_for_each(|key| transaction.delete(keys::of_row(table, key)))
        })
    }
}

impl AlterTable for Connection {
    /// As the method that GlueSQL provides, which would also merge two tables.
    fn rename_schema(&mut self, old: &str, new: &str) -> Result<()> {
        let not_found = || Error::from(AlterTableError::TableNotFound(old.into()));
        let mut schema = self.fetch_schema(old)?.ok_or_else(not_found)?;
        if self.fetch_schema(new)?.is_some() {
            return Err(AlterError::TableAlreadyExists(new.into()).into());
        }
        schema.table_name = new.into();
        let rows = self.scan_data(old)?.collect::<Result<Vec<_>>>()?;
        self.insert_schema(&schema)?;
        self.insert_data(new, rows)?;
        self.delete_schema(old)
    }
}

/// The only index is the primary key, which orders the rows themselves.
impl Index for Connection {
    fn scan_indexed_data<'a>(
        &'a self,
        table: &str,
        index: &str,
        asc: Option<bool>,
        range: Option<(&IndexOperator, Value)>,
    ) -> Result<RowIter<'a>> {
        let schema = self.fetch_schema(table)?;
        let column = schema.as_ref().and_then(primary_key).filter(|column| column.name == index);
        let ends = column.zip(range).and_then(|(column, (_, ends))| ranges::ends_of(ends, column));
        // A plan may be older than the table: another connection has altered it.
        let [low, high] =
            ends.ok_or_else(|| storage(format!("the table {table} has changed: try again")))?;
        let entries = self.range(keys::of_range(table, low.as_ref(), high.as_ref()));
        Ok(match asc {
            Some(false) => rows(table, entries.rev()),
            _ => rows(table, entries),
        })
    }
}

impl Planner for Connection {
    fn plan(&self, statement: StatementPlan) -> Result<StatementPlan> {
        let schemas = fetch_schema_map(self, &statement)?;
        validate(&schemas, &statement)?;
        let statement = plan_schemaless(&schemas, statement)?;
        let statement = plan_primary_key(&schemas, statement);
        let statement = plan_hash_join(&schemas, statement);
        let mut statement = plan_aggregate(statement);
        ranges::plan(&schemas, &mut statement);
        Ok(statement)
    }
}

// What is not offered: `CREATE INDEX`, `CREATE FUNCTION`, and when a table was created.
impl IndexMut for Connection {}
impl CustomFunction for Connection {}
impl CustomFunctionMut for Connection {}
impl Metadata for Connection {}
