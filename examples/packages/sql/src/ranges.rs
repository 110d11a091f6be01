//! Reads a range of primary keys, or rows in the order of their primary keys, instead of a table.
//!
//! GlueSQL plans a lookup of one primary key by itself. For ranges and for `ORDER BY` it knows only
//! indexes that `CREATE INDEX` made; it asks them for one bound, and for none if they also give the
//! order. This pass makes the primary key such an index, with two bounds and an order:
//! `TableAccessPlan::Index` has room for a value of any type, so the value is a list of two.
//!
//! The filter stays in the plan. So a bound only has to leave out no row that the filter accepts:
//! it includes its end, and of several bounds on one side the first is used.
//!
//! Queries of one table get here, also with aggregates. Joins, subqueries and `DISTINCT` keep
//! GlueSQL's plan. `UPDATE` and `DELETE` have no plan: GlueSQL scans the table for them.

use gluesql_core::ast::{BinaryOperator, ColumnDef, IndexOperator, UnaryOperator};
use gluesql_core::data::{Key, Schema, Value};
use gluesql_core::executor::evaluate_stateless;
use gluesql_core::plan::{
    AggregationInputPlan, AggregationPlan, ExprPlan, FilterInputPlan, FilterPlan, HavingPlan,
    IndexPredicatePlan, LimitInputPlan, LimitPlan, OffsetInputPlan, OffsetPlan, OrderByExprPlan,
    ProjectInputPlan, ProjectPlan, QueryPlan, SelectOrderByPlan, SourcePlan, StatementPlan,
    TableAccessPlan, TableSourcePlan,
};
use std::collections::HashMap;

/// The primary key of a table, if it has one.
#[must_use]
pub fn primary_key(schema: &Schema) -> Option<&ColumnDef> {
    let mut columns = schema.column_defs.iter().flatten();
    columns.find(|column| column.unique.is_some_and(|unique| unique.is_primary))
}

/// The ends of a range of primary keys of `column`, as [`plan`] gives them to the index; `None` if
/// they are not of its type, or not ends.
#[must_use]
pub fn ends_of(range: Value, column: &ColumnDef) -> Option<[Option<Key>; 2]> {
    let Value::List(ends) = range else { return None };
    let are_of_its_type = ends.iter().all(|end| end.validate_type(&column.data_type).is_ok());
    let ends: Vec<Key> = ends.into_iter().map(Key::try_from).collect::<Result<_, _>>().ok()?;
    let ends = <[Key; 2]>::try_from(ends).ok().filter(|_| are_of_its_type)?;
    Some(ends.map(|end| Some(end).filter(|end| *end != Key::None)))
}

/// Changes the plan of a query that can use the primary key.
pub fn plan(schemas: &HashMap<String, Schema>, statement: &mut StatementPlan) {
    let StatementPlan::Query(query) = statement else { return };
    let Some((select, order)) = select_and_order(query) else { return };
    // `ORDER BY` is one of groups otherwise.
    let is_of_rows =
        matches!(select.input, ProjectInputPlan::Source(_) | ProjectInputPlan::Filter(_));
    let Some((table, filter)) = table_and_filter(&mut select.input) else { return };
    let Some(key) = KeyColumn::of(schemas, table) else { return };

    let mut range = Range { low: Value::Null, high: Value::Null };
    if let Some(filter) = filter {
        range.narrow(&key, filter);
    }
    let mut asc = None;
    if let Some(order) = order
        && let [by] = order.as_slice()
        && is_of_rows
        && key.is(&by.expr)
    {
        asc = Some(by.asc.unwrap_or(true));
        // The rows come in this order, and one by one: a `LIMIT` ends the scan.
        order.clear();
    }
    if asc.is_none() && range.low.is_null() && range.high.is_null() {
        return;
    }
    let expr = ExprPlan::Value(Value::List(vec![range.low, range.high]));
    let predicate = Some(IndexPredicatePlan { operator: IndexOperator::Eq, expr });
    let name = key.column.name.clone();
    table.access = TableAccessPlan::Index { name, asc, predicate };
}

/// The `SELECT` of a query, and its `ORDER BY`.
fn select_and_order(
    query: &mut QueryPlan,
) -> Option<(&mut ProjectPlan, Option<&mut Vec<OrderByExprPlan>>)> {
    match query {
        QueryPlan::Project(read)
        | QueryPlan::Offset(OffsetPlan { input: OffsetInputPlan::Project(read), .. })
        | QueryPlan::Limit(LimitPlan {
            input:
                LimitInputPlan::Project(read)
                | LimitInputPlan::Offset(OffsetPlan { input: OffsetInputPlan::Project(read), .. }),
            ..
        }) => Some((read, None)),
        QueryPlan::SelectOrderBy(ordered)
        | QueryPlan::Offset(OffsetPlan {
            input: OffsetInputPlan::SelectOrderBy(ordered), ..
        })
        | QueryPlan::Limit(LimitPlan {
            input:
                LimitInputPlan::SelectOrderBy(ordered)
                | LimitInputPlan::Offset(OffsetPlan {
                    input: OffsetInputPlan::SelectOrderBy(ordered),
                    ..
                }),
            ..
        }) => {
            let SelectOrderByPlan { input, exprs } = ordered;
            Some((input, Some(exprs)))
        }
        _ => None,
    }
}

/// The table that a `SELECT` reads, if it is one, and the filter of its rows.
fn table_and_filter(
    input: &mut ProjectInputPlan,
) -> Option<(&mut TableSourcePlan, Option<&ExprPlan>)> {
    match input {
        ProjectInputPlan::Source(SourcePlan::Table(table)) => Some((table, None)),
        ProjectInputPlan::Filter(FilterPlan {
            input: FilterInputPlan::Source(SourcePlan::Table(table)),
            expr,
        })
        | ProjectInputPlan::Aggregation(AggregationPlan {
            input:
                AggregationInputPlan::Filter(FilterPlan {
                    input: FilterInputPlan::Source(SourcePlan::Table(table)),
                    expr,
                }),
            ..
        })
        | ProjectInputPlan::Having(HavingPlan {
            input:
                AggregationPlan {
                    input:
                        AggregationInputPlan::Filter(FilterPlan {
                            input: FilterInputPlan::Source(SourcePlan::Table(table)),
                            expr,
                        }),
                    ..
                },
            ..
        }) => Some((table, Some(expr))),
        _ => None,
    }
}

/// The primary key of the table of a query.
struct KeyColumn<'a> {
    column: &'a ColumnDef,
    /// What the query calls the table.
    table: String,
}

impl<'a> KeyColumn<'a> {
    fn of(schemas: &'a HashMap<String, Schema>, table: &TableSourcePlan) -> Option<Self> {
        let column = schemas.get(&table.name).and_then(primary_key)?;
        let alias = table.alias.as_ref();
        let renames_columns = alias.is_some_and(|alias| !alias.columns.is_empty());
        if renames_columns || table.access != TableAccessPlan::FullScan {
            return None;
        }
        let table = alias.map_or(&table.name, |alias| &alias.name).clone();
        Some(KeyColumn { column, table })
    }

    fn is(&self, expr: &ExprPlan) -> bool {
        match expr {
            ExprPlan::Identifier(name) => *name == self.column.name,
            ExprPlan::CompoundIdentifier { alias, ident } => {
                *alias == self.table && *ident == self.column.name
            }
            ExprPlan::Nested(expr) => self.is(expr),
            _ => false,
        }
    }

    /// The value of an expression without columns, as the type of the key.
    fn constant(&self, expr: &ExprPlan) -> Option<Value> {
        let is_constant = match expr {
            ExprPlan::Literal(_) | ExprPlan::Value(_) | ExprPlan::TypedString { .. } => true,
            ExprPlan::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => {
                matches!(**expr, ExprPlan::Literal(_))
            }
            ExprPlan::Nested(expr) => return self.constant(expr),
            _ => false,
        };
        let value = is_constant.then(|| evaluate_stateless(None, expr))?;
        // A value of another type has no place among the keys: then there is no bound.
        value.ok()?.try_into_value(&self.column.data_type, false).ok()
    }
}

/// A range of primary keys. An end that is `NULL` is none.
struct Range {
    low: Value,
    high: Value,
}

impl Range {
    /// Leaves out keys that `filter` does not accept.
    fn narrow(&mut self, key: &KeyColumn<'_>, filter: &ExprPlan) {
        match filter {
            ExprPlan::Nested(filter) => self.narrow(key, filter),
            ExprPlan::BinaryOp { left, op: BinaryOperator::And, right } => {
                self.narrow(key, left);
                self.narrow(key, right);
            }
            ExprPlan::BinaryOp { left, op, right } if key.is(left) => {
                self.narrow_by(op, key.constant(right));
            }
            ExprPlan::BinaryOp { left, op, right } if key.is(right) => {
                let reversed = match op {
                    BinaryOperator::Lt => BinaryOperator::Gt,
                    BinaryOperator::LtEq => BinaryOperator::GtEq,
                    BinaryOperator::Gt => BinaryOperator::Lt,
                    BinaryOperator::GtEq => BinaryOperator::LtEq,
                    _ => return,
                };
                self.narrow_by(&reversed, key.constant(left));
            }
            ExprPlan::Between { expr, negated: false, low, high } if key.is(expr) => {
                self.narrow_by(&BinaryOperator::GtEq, key.constant(low));
                self.narrow_by(&BinaryOperator::LtEq, key.constant(high));
            }
            _ => {}
        }
    }

    fn narrow_by(&mut self, op: &BinaryOperator, value: Option<Value>) {
        let end = match op {
            BinaryOperator::Gt | BinaryOperator::GtEq => &mut self.low,
            BinaryOperator::Lt | BinaryOperator::LtEq => &mut self.high,
            _ => return,
        };
        if let Some(value) = value
            && end.is_null()
        {
            *end = value;
        }
    }
}
