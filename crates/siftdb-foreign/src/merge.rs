//! The merge operators of RocksDB that are known: they resolve operands as RocksDB's own do.

/// A merge operator of RocksDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeOperator {
    /// `UInt64AddOperator`: the sum of numbers of eight bytes, little-endian, modulo 2^64. Anything
    /// else counts as 0.
    Uint64Add,
    /// `StringAppendOperator`: one after the other, with the delimiter of `OPTIONS` between them. A
    /// comma if that names no operator; refused if it names the operator without a delimiter.
    Append,
    /// `MaxOperator`: the bytewise largest.
    Max,
    /// `PutOperator`: the last one.
    Last,
}

/// A merge operator with its settings.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    operator: MergeOperator,
    delimiter: Vec<u8>,
}

/// An empty delimiter is not written, and old versions of RocksDB wrote none.
const UNKNOWN_DELIMITER: &str = "`OPTIONS` does not say its delimiter: compact the database with \
    RocksDB, which joins the operands";

/// The delimiter among the fields of a setting. It is the last one and can be any bytes: RocksDB
/// escapes no semicolon and no space.
fn delimiter(fields: &str) -> Option<&str> {
    let fields = fields.strip_suffix(';').unwrap_or(fields);
    let (_, delimiter) = fields.split_once("delimiter=").or(fields.split_once("delim="))?;
    Some(delimiter)
}

impl Merge {
    /// The operator of a column family that has this setting. The error says which one it has
    /// instead.
    pub(crate) fn new(operator: MergeOperator, setting: Option<&str>) -> Result<Self, String> {
        let setting = setting.unwrap_or("nullptr");
        let fields = setting.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let id = match fields {
            None => setting,
            Some(fields) => {
                let id = fields.split(';').find_map(|field| field.trim().strip_prefix("id="));
                id.unwrap_or(fields)
            }
        };
        let names: &[&str] = match operator {
            MergeOperator::Uint64Add => &["UInt64AddOperator", "uint64add"],
            MergeOperator::Append => {
                &["StringAppendOperator", "StringAppendTESTOperator", "stringappend"]
            }
            MergeOperator::Max => &["MaxOperator", "max"],
            MergeOperator::Last => &["PutOperator", "put"],
        };
        if id != "nullptr" && !names.contains(&id) {
            return Err(format!("its merge operator is {id}"));
        }
        let delimiter = match operator {
            MergeOperator::Append if id == "nullptr" => ",",
            MergeOperator::Append => fields.and_then(delimiter).ok_or(UNKNOWN_DELIMITER)?,
            _ => "",
        };
        Ok(Merge { operator, delimiter: delimiter.into() })
    }

    /// The value of a key with these operands, the oldest first, on top of `base`.
    pub(crate) fn value(
        &self,
        base: Option<Vec<u8>>,
        operands: impl Iterator<Item = Vec<u8>>,
    ) -> Vec<u8> {
        let of_number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let merged = operands.fold(base, |value, operand| {
            Some(match (self.operator, value) {
                (MergeOperator::Uint64Add, value) => {
                    let sum = of_number(&value.unwrap_or_default());
                    sum.wrapping_add(of_number(&operand)).to_le_bytes().into()
                }
                (MergeOperator::Append, Some(value)) => {
                    [&value[..], &self.delimiter, &operand].concat()
                }
                (MergeOperator::Max, Some(value)) => value.max(operand),
                (_, None) | (MergeOperator::Last, Some(_)) => operand,
            })
        });
        merged.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_those_of_the_setting() {
        let append = |setting| {
            let merge = Merge::new(MergeOperator::Append, setting)?;
            let operands = [b"b".to_vec(), b"c".to_vec()].into_iter();
            Ok::<_, String>(String::from_utf8(merge.value(Some(b"a".into()), operands)).unwrap())
        };
        assert_eq!(append(None).unwrap(), "a,b,c");
        assert_eq!(append(Some("nullptr")).unwrap(), "a,b,c");
        assert!(append(Some("StringAppendOperator")).unwrap_err().contains("delimiter"));
        let with_delimiter = "{id=StringAppendOperator;delimiter=::;}";
        assert_eq!(append(Some(with_delimiter)).unwrap(), "a::b::c");
        assert_eq!(append(Some("MaxOperator")), Err("its merge operator is MaxOperator".into()));
        assert!(Merge::new(MergeOperator::Max, Some("max")).is_ok());
        assert!(Merge::new(MergeOperator::Uint64Add, Some(with_delimiter)).is_err());
    }

    #[test]
    fn operands_count_from_the_oldest() {
        let merge = |operator, base: Option<&[u8]>, operands: &[&[u8]]| {
            let merge = Merge::new(operator, None).unwrap();
            let operands = operands.iter().map(|operand| operand.to_vec());
            merge.value(base.map(Into::into), operands)
        };
        let number = |number: u64| number.to_le_bytes();
        let sum = |base: Option<&[u8]>| {
            merge(MergeOperator::Uint64Add, base, &[&number(7), &number(u64::MAX)])
        };
        assert_eq!(sum(Some(&number(5))), number(11));
        assert_eq!(sum(None), number(6));
        // RocksDB logs an error and takes 0.
        assert_eq!(sum(Some(b"no number")), number(6));
        assert_eq!(merge(MergeOperator::Max, Some(b"b"), &[b"a", b"c", b"b"]), b"c");
        assert_eq!(merge(MergeOperator::Last, Some(b"b"), &[b"c", b"a"]), b"a");
        assert_eq!(merge(MergeOperator::Append, None, &[b"", b"a"]), b",a");
    }
}
