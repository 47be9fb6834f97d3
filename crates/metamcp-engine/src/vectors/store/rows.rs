//! Reads, writes and prunes rows.

use std::sync::Arc;

use metamcp_types::text;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::{Bounds, Key, MAX_DESCRIPTION_CHARS, Open, Remembered, StoreError, schema, signed};
use crate::vectors::answer::is_unit;

/// A vector unused for this long is deleted. Not sooner: another project with the same home may use it.
const KEEP_UNUSED_MS: i64 = 30 * DAY_MS;
/// The resolution of the time of last use: a finer one would turn every read into a write.
pub(super) const DAY_MS: i64 = 24 * 60 * 60 * 1000;

impl Open {
    pub(super) fn read(
        &mut self,
        model: &str,
        wanted: &[Key],
        now_ms: i64,
    ) -> Result<Vec<Option<Arc<[f32]>>>, StoreError> {
        let mut found = Vec::with_capacity(wanted.len());
        let mut touched = Vec::new();
        let mut select = self.connection.prepare(
            "SELECT rowid, dims, embedding, used_at, checksum FROM embeddings
             WHERE server = ?1 AND tool_name = ?2 AND model = ?3 AND digest = ?4",
        )?;
        for key in wanted {
            let row = select
                .query_row(params![key.server, key.tool, model, key.digest], |row| {
                    let dims: i64 = row.get(1)?;
                    let bytes = row.get_ref(2)?.as_blob().ok();
                    let whose = [key.server.as_str(), &key.tool, model];
                    let sum = bytes.map(|bytes| schema::checksum(whose, &key.digest, bytes));
                    // A flipped bit is detected here, and the vector is computed again.
                    let whole = sum.is_some_and(|sum| {
                        row.get_ref(4)
                            .is_ok_and(|kept| kept.as_blob().is_ok_and(|kept| kept == sum))
                    });
                    let vector = bytes.filter(|_| whole).and_then(schema::from_bytes);
                    let fits = vector.filter(|vector| schema::length(vector) == dims);
                    Ok((row.get::<_, i64>(0)?, fits, row.get::<_, i64>(3)?))
                })
                .optional()?;
            found.push(row.and_then(|(id, vector, used_at)| {
                if now_ms.abs_diff(used_at) > DAY_MS.unsigned_abs() {
                    touched.push(id);
                }
                vector.filter(|vector| is_unit(vector)).map(Arc::from)
            }));
        }
        drop(select);
        if !touched.is_empty() {
            // Having the vectors matters more than recording their use.
            self.touch(&touched, now_ms).ok();
        }
        Ok(found)
    }

    fn touch(&mut self, rows: &[i64], now_ms: i64) -> Result<(), StoreError> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut update =
            transaction.prepare("UPDATE embeddings SET used_at = ?1 WHERE rowid = ?2")?;
        for row in rows {
            update.execute([now_ms, *row])?;
        }
        drop(update);
        transaction.commit()?;
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        model: &str,
        rows: &[Remembered],
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut insert = transaction.prepare(schema::INSERT)?;
        for row in rows {
            let bytes = schema::to_bytes(&row.vector);
            let whose = [row.key.server.as_str(), &row.key.tool, model];
            let sum = schema::checksum(whose, &row.key.digest, &bytes);
            insert.execute(params![
                row.key.server,
                row.key.tool,
                model,
                schema::length(&row.vector),
                row.key.digest,
                text::cut(&row.text, MAX_DESCRIPTION_CHARS),
                bytes,
                now_ms,
                now_ms,
                sum,
            ])?;
        }
        drop(insert);
        transaction.commit()?;
        Ok(())
    }

    /// Deletes rows unused for long, and the least recently used ones if there are too many.
    pub(super) fn prune(&mut self, bounds: Bounds, now_ms: i64) -> Result<(), StoreError> {
        const OLDEST: &str = "DELETE FROM embeddings WHERE rowid IN
            (SELECT rowid FROM embeddings ORDER BY used_at, rowid LIMIT ?1)";
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction
            .execute("DELETE FROM embeddings WHERE used_at < ?1", [now_ms - KEEP_UNUSED_MS])?;
        let rows = number(&transaction, "SELECT count(*) FROM embeddings")?;
        let too_many = rows - i64::from(bounds.rows);
        if too_many > 0 {
            transaction.execute(OLDEST, [too_many])?;
        }
        let pages = number(&transaction, "PRAGMA page_count")?
            - number(&transaction, "PRAGMA freelist_count")?;
        let bytes = pages * number(&transaction, "PRAGMA page_size")?;
        // Before the file is full, since a full one accepts no writes.
        let most = signed(bounds.bytes / 10 * 9);
        if bytes > most {
            let rows = rows.min(i64::from(bounds.rows));
            let share = (bytes - most) as f64 / bytes as f64;
            transaction.execute(OLDEST, [(rows as f64 * share).ceil() as i64])?;
        }
        transaction.commit()?;
        // Frees a page at each step.
        let mut vacuum = self.connection.prepare("PRAGMA incremental_vacuum")?;
        let mut pages = vacuum.query([])?;
        while pages.next()?.is_some() {}
        Ok(())
    }
}

pub(super) fn number(connection: &Connection, question: &str) -> Result<i64, rusqlite::Error> {
    connection.query_row(question, [], |row| row.get(0))
}
