//! Tasks that take tools of several servers.

use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::json;

use super::single::{commits, contains, succeeded};
use super::{Task, site};
use crate::run;
use crate::tokens::place::Place;
use crate::tokens::servers::Servers;

const KIND: &str = "across servers";

pub(super) const A_REPORT_FROM_THE_DATABASE: Task = Task {
    name: "a report from the database",
    kind: KIND,
    prepare: shop,
    talk: |model, place| {
        let queries = ["which tables are in the database", "list tables of the sqlite database"];
        let tables = model.use_tool("sqlite:list_tables", &queries, &json!({}))?;
        contains(&tables, "orders")?;
        let queries = ["show the columns of a table", "describe the schema of a database table"];
        for table in ["customers", "orders"] {
            model.use_tool("sqlite:describe_table", &queries, &json!({ "table_name": table }))?;
        }
        let query = "SELECT c.name, SUM(o.amount) AS total FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY c.name ORDER BY total DESC LIMIT 1";
        let queries = ["run a select query", "execute SQL that reads from the database"];
        let best = model.use_tool("sqlite:read_query", &queries, &json!({ "query": query }))?;
        contains(&best, "Noor")?;
        let args =
            json!({ "path": place.file("report.md"), "content": "Best customer: Noor, 1290\n" });
        model.use_tool("filesystem:write_file", &["write a file", "create a text file"], &args)?;
        contains(&place.read("report.md")?, "Noor")
    },
};

pub(super) const A_COMMIT_TO_REMEMBER: Task = Task {
    name: "a commit to remember",
    kind: KIND,
    prepare: |place, _| commits(place),
    talk: |model, place| {
        let repository = place.repository();
        let queries = ["search the git history for a message", "show the commit log"];
        let args = json!({ "repo_path": repository, "max_count": 10 });
        let log = model.use_tool("git:git_log", &queries, &args)?;
        contains(&log, "Fix the login of guests")?;
        let queries = ["show what a commit changed", "git show a revision"];
        let args = json!({ "repo_path": repository, "revision": "HEAD~1" });
        let change = model.use_tool("git:git_show", &queries, &args)?;
        contains(&change, "guests: no")?;
        let entity = json!({
            "name": "login", "entityType": "feature",
            "observations": ["since HEAD~1 guests cannot log in"],
        });
        let queries = ["save this for later in memory", "create entities in the knowledge graph"];
        model.use_tool("memory:create_entities", &queries, &json!({ "entities": [entity] }))?;
        contains(&std::fs::read_to_string(place.memory())?, "guests cannot log in")
    },
};

pub(super) const A_PAGE_INTO_THE_DATABASE: Task = Task {
    name: "a page into the database",
    kind: KIND,
    prepare: shop,
    talk: |model, _| {
        let page =
            site::serve("<html><body><p>Exchange rate today: 1 EUR = 1.17 USD</p></body></html>")?;
        let queries = ["get a web page", "fetch the content of a URL as markdown"];
        let rate = model.use_tool("fetch:fetch", &queries, &json!({ "url": page }))?;
        contains(&rate, "1.17 USD")?;
        let query = "CREATE TABLE rates (currency TEXT, rate REAL)";
        let queries = ["create a database table", "create a new table in sqlite"];
        model.use_tool("sqlite:create_table", &queries, &json!({ "query": query }))?;
        let query = "INSERT INTO rates VALUES ('USD', 1.17)";
        let queries = ["insert a row into a table", "execute an INSERT query in sqlite"];
        model.use_tool("sqlite:write_query", &queries, &json!({ "query": query }))?;
        let query = "SELECT o.amount * r.rate AS dollars FROM orders o, rates r WHERE o.id = 1";
        let queries = ["run a select query", "execute SQL that reads from the database"];
        let dollars = model.use_tool("sqlite:read_query", &queries, &json!({ "query": query }))?;
        contains(&dollars, "468")
    },
};

/// One script over two servers. The database answers with text that looks like data.
pub(super) const FILES_FROM_ROWS: Task = Task {
    name: "files from rows",
    kind: KIND,
    prepare: shop,
    talk: |model, place| {
        let queries = ["run a select query", "execute SQL that reads from the database"];
        model.find("sqlite:read_query", &queries)?;
        model.find("filesystem:write_file", &["write a file", "create a text file"])?;
        let folder = place.files();
        let folder = folder.to_string_lossy();
        let rows = "const rows = await sqlite.readQuery({ query: \"SELECT id, name FROM customers ORDER BY id\" });";
        let write = format!(
            "for (const row of list) await filesystem.writeFile({{ path: `{folder}/${{row.id}}.txt`, content: row.name }});\nreturn list.length;"
        );
        let naive = format!("{rows}\nconst list = rows.map(row => row);\n{write}");
        let look = format!("{rows}\nreturn [typeof rows, String(rows).slice(0, 200)];");
        let right =
            format!("{rows}\nconst list = JSON.parse(rows.replaceAll(\"'\", '\"'));\n{write}");
        let knows = model.knows_it_returns("sqlite:read_query", "string");
        if knows {
            model.execute(&right)?
        } else {
            model.execute_and_fix(&naive, &look, &right)?
        };
        succeeded(model)?;
        ensure!(place.read("3.txt")? == "Noor", "3.txt is wrong");
        Ok(())
    },
};

/// A database with customers and their orders.
fn shop(place: &Place, servers: &Servers) -> Result<()> {
    const PREPARE: &str = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
base.execute('CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)')
base.execute('CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, amount INTEGER)')
base.executemany('INSERT INTO customers VALUES (?, ?)', [(1, 'Ada'), (2, 'Bo'), (3, 'Noor'), (4, 'Wim')])
base.executemany('INSERT INTO orders VALUES (?, ?, ?)', [(1, 1, 400), (2, 2, 250), (3, 3, 990), (4, 3, 300), (5, 4, 10)])
base.commit()
";
    let file = place.folder().join("data.db");
    run::quiet(Command::new(servers.python()).args(["-c", PREPARE]).arg(file))?;
    Ok(())
}
