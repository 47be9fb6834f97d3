//! The tables, and how older ones become them.

use metamcp_core::text;
use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};
use sha2::{Digest, Sha256};

use super::{MAX_DESCRIPTION_CHARS, MAX_ROWS, StoreError};
use crate::vectors::answer::{MAX_DIMENSIONS, unit};
use crate::vectors::endpoint::VOYAGE_MODEL;

/// What this program writes. 0 is an empty file; 1 has server, tool_name, description, embedding, updated_at.
pub(super) const VERSION: i64 = 2;

const TABLE: &str = "
    CREATE TABLE embeddings (
        server TEXT NOT NULL,
        tool_name TEXT NOT NULL,
        model TEXT NOT NULL,
        dims INTEGER NOT NULL,
        digest BLOB NOT NULL,
        description TEXT NOT NULL,
        embedding BLOB NOT NULL,
        updated_at INTEGER NOT NULL,
        used_at INTEGER NOT NULL,
        PRIMARY KEY (server, tool_name, model)
    );
    CREATE INDEX embeddings_by_use ON embeddings (used_at);
";

const SHAPE: &str =
    "SELECT server, tool_name, model, dims, digest, description, embedding, updated_at, used_at
    FROM embeddings LIMIT 0";

pub(super) const INSERT: &str = "INSERT OR REPLACE INTO embeddings
    (server, tool_name, model, dims, digest, description, embedding, updated_at, used_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

/// Brings the file to the present version in one transaction, or leaves it as it was.
pub(super) fn migrate(connection: &mut Connection, now_ms: i64) -> Result<(), StoreError> {
    let found = version(connection)?;
    if found > VERSION {
        return Err(StoreError::Future { found });
    }
    if found < VERSION {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // A gateway of another version, which knows no turns, may have been quicker.
        let from = match version(&transaction)? {
            // The first version may not have written its number.
            0 if has_tables(&transaction)? => 1,
            from => from,
        };
        match from {
            0 => transaction.execute_batch(TABLE)?,
            1 => from_first(&transaction, now_ms)?,
            VERSION => {}
            found => return Err(StoreError::Future { found }),
        }
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.commit()?;
    }
    connection.prepare(SHAPE)?;
    Ok(())
}

/// The number in the file. Also the first real look into it.
pub(super) fn version(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Numbers as they are stored: 32 bits each, little endian.
pub(super) fn to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// How many numbers, as a column holds it.
pub(super) fn length(vector: &[f32]) -> i64 {
    i64::try_from(vector.len()).unwrap_or(i64::MAX)
}

/// The numbers, if there is a sensible count of them.
pub(super) fn from_bytes(bytes: &[u8]) -> Option<Vec<f32>> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    let sensible = rest.is_empty() && (1..=MAX_DIMENSIONS).contains(&numbers.len());
    sensible.then(|| numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

fn has_tables(connection: &Connection) -> Result<bool, rusqlite::Error> {
    connection.query_row("SELECT count(*) > 0 FROM sqlite_master", [], |row| row.get(0))
}

/// The first version knew one model, and kept the text itself in place of its digest. A row that does not
/// fit is left behind: it can be made again.
fn from_first(transaction: &Transaction<'_>, now_ms: i64) -> Result<(), StoreError> {
    transaction.execute_batch("ALTER TABLE embeddings RENAME TO embeddings_first")?;
    // An index keeps its name when its table gets another.
    transaction.execute_batch("DROP INDEX IF EXISTS embeddings_by_use")?;
    transaction.execute_batch(TABLE)?;
    let mut insert = transaction.prepare(INSERT)?;
    let mut select = transaction.prepare(
        "SELECT server, tool_name, description, embedding, updated_at FROM embeddings_first LIMIT ?1",
    )?;
    let mut rows = select.query([MAX_ROWS])?;
    while let Some(row) = rows.next()? {
        let Some(first) = First::read(row) else { continue };
        let Some(vector) = from_bytes(&first.embedding).and_then(unit) else { continue };
        insert.execute(params![
            first.server,
            first.tool,
            VOYAGE_MODEL,
            length(&vector),
            Sha256::digest(first.description.as_bytes()).as_slice(),
            text::cut(&first.description, MAX_DESCRIPTION_CHARS),
            to_bytes(&vector),
            first.updated_at,
            now_ms,
        ])?;
    }
    drop(rows);
    drop((select, insert));
    transaction.execute_batch("DROP TABLE embeddings_first")?;
    Ok(())
}

struct First {
    server: String,
    tool: String,
    description: String,
    embedding: Vec<u8>,
    updated_at: i64,
}

impl First {
    fn read(row: &Row<'_>) -> Option<First> {
        Some(First {
            server: row.get(0).ok()?,
            tool: row.get(1).ok()?,
            description: row.get::<_, Option<String>>(2).ok()?.unwrap_or_default(),
            embedding: row.get(3).ok()?,
            // A date written as text is no loss: only its age was in it.
            updated_at: row.get(4).unwrap_or(0),
        })
    }
}
