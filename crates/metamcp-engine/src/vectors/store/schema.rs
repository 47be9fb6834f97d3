//! The tables, and the migrations of older ones.

use metamcp_types::text;
use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};
use sha2::{Digest, Sha256};

use super::{MAX_DESCRIPTION_CHARS, MAX_ROWS, StoreError};
use crate::vectors::answer::{MAX_DIMENSIONS, unit};
use crate::vectors::endpoint::VOYAGE_MODEL;

/// The version written. 0 is an empty file; 1 has server, `tool_name`, description, embedding, `updated_at`; 2 has no
/// checksum.
pub(super) const VERSION: i64 = 3;

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
        checksum BLOB,
        PRIMARY KEY (server, tool_name, model)
    );
    CREATE INDEX embeddings_by_use ON embeddings (used_at);
";

const SHAPE: &str =
    "SELECT server, tool_name, model, dims, digest, description, embedding, updated_at, used_at,
    checksum FROM embeddings LIMIT 0";

pub(super) const INSERT: &str = "INSERT OR REPLACE INTO embeddings
    (server, tool_name, model, dims, digest, description, embedding, updated_at, used_at, checksum)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

/// A checksum of a vector and its key.
pub(super) fn checksum(whose: [&str; 3], digest: &[u8], embedding: &[u8]) -> [u8; 8] {
    let mut hash = Sha256::new();
    for part in whose.map(str::as_bytes).into_iter().chain([digest, embedding]) {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(part);
    }
    let whole = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&whole[..8]);
    first
}

/// Migrates the file to the current version in one transaction, or leaves it as it was.
pub(super) fn migrate(connection: &mut Connection, now_ms: i64) -> Result<(), StoreError> {
    let found = version(connection)?;
    if found > VERSION {
        return Err(StoreError::Future { found });
    }
    if found < VERSION {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // A gateway of another version, without this lock, may have been quicker.
        let from = match version(&transaction)? {
            // The first version may not have written its number.
            0 if has_tables(&transaction)? => 1,
            from => from,
        };
        match from {
            0 => transaction.execute_batch(TABLE)?,
            1 => from_first(&transaction, now_ms)?,
            2 => from_second(&transaction)?,
            VERSION => {}
            found => return Err(StoreError::Future { found }),
        }
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.commit()?;
    }
    connection.prepare(SHAPE)?;
    Ok(())
}

/// The version of the file. Also the first read of it, which reveals damage.
pub(super) fn version(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// As stored: 32 bits each, little endian.
pub(super) fn to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The number of dimensions, as stored.
pub(super) fn length(vector: &[f32]) -> i64 {
    i64::try_from(vector.len()).unwrap_or(i64::MAX)
}

/// The vector, if its length is plausible.
pub(super) fn from_bytes(bytes: &[u8]) -> Option<Vec<f32>> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    let sensible = rest.is_empty() && (1..=MAX_DIMENSIONS).contains(&numbers.len());
    sensible.then(|| numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

fn has_tables(connection: &Connection) -> Result<bool, rusqlite::Error> {
    connection.query_row("SELECT count(*) > 0 FROM sqlite_master", [], |row| row.get(0))
}

/// The first version had one model, and the text itself instead of its digest. A row that does not fit is dropped: it can
/// be computed again.
fn from_first(transaction: &Transaction<'_>, now_ms: i64) -> Result<(), StoreError> {
    transaction.execute_batch("ALTER TABLE embeddings RENAME TO embeddings_first")?;
    // An index keeps its name when its table is renamed.
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
        let (digest, bytes) = (Sha256::digest(first.description.as_bytes()), to_bytes(&vector));
        let whose = [first.server.as_str(), &first.tool, VOYAGE_MODEL];
        insert.execute(params![
            first.server,
            first.tool,
            VOYAGE_MODEL,
            length(&vector),
            digest.as_slice(),
            text::cut(&first.description, MAX_DESCRIPTION_CHARS),
            bytes,
            first.updated_at,
            now_ms,
            checksum(whose, &digest, &bytes),
        ])?;
    }
    drop(rows);
    drop((select, insert));
    transaction.execute_batch("DROP TABLE embeddings_first")?;
    Ok(())
}

/// The second version had no checksums: its vectors are taken as they are.
fn from_second(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    transaction.execute_batch("ALTER TABLE embeddings ADD COLUMN checksum BLOB")?;
    let mut update = transaction.prepare("UPDATE embeddings SET checksum = ?1 WHERE rowid = ?2")?;
    let mut select = transaction
        .prepare("SELECT rowid, server, tool_name, model, digest, embedding FROM embeddings")?;
    let mut sums = Vec::new();
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let read = || -> rusqlite::Result<(i64, [u8; 8])> {
            let [server, tool, model] =
                [row.get::<_, String>(1)?, row.get::<_, String>(2)?, row.get::<_, String>(3)?];
            let (digest, embedding) = (row.get_ref(4)?.as_blob(), row.get_ref(5)?.as_blob());
            let whose = [server.as_str(), &tool, &model];
            let sum = checksum(whose, digest.unwrap_or_default(), embedding.unwrap_or_default());
            Ok((row.get(0)?, sum))
        };
        // A row that cannot be read gets no checksum, and is computed again.
        sums.extend(read().ok());
    }
    drop(rows);
    for (row, sum) in sums {
        update.execute(params![sum, row])?;
    }
    drop((select, update));
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
