//! `search_tools`, `list_tools`, `list_namespaces`, `describe_tool`, `list_tool_examples`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use metamcp_search::search::Hit;
use metamcp_surface::discover::{DiscoverRequest, Operation};
use metamcp_surface::full_surface::{
    self, BadArguments, DescribeRequest, Documented, ExamplesRequest, ListRequest, SearchRequest,
    SearchResponse,
};
use serde_json::Value;

use super::{later, written};
use crate::compute;
use crate::router::{Caller, Entry};
use crate::surface::call::usable;
use crate::surface::discover::SearchResults;
use crate::surface::reply::{Code, ErrorObject};
use crate::surface::{Finished, Step, View};

impl View {
    pub(super) fn search_tools(
        &self,
        arguments: Option<&[u8]>,
        caller: &Caller,
    ) -> Result<Step, BadArguments> {
        let SearchRequest { query, limit, cursor } = SearchRequest::decode(arguments)?;
        let (view, caller) = (self.clone(), caller.clone());
        Ok(later("search_tools", async move {
            let request = DiscoverRequest {
                operation: Operation::Search,
                query: Some(query.clone()),
                limit,
                cursor,
                ..DiscoverRequest::default()
            };
            let found = view.search(request, |_, _, results| (page(results), results.ids()));
            let (page, ids) = found.await?;
            if !ids.is_empty() {
                view.surface.searched(&caller, &query, &ids);
            }
            Ok(page)
        }))
    }

    pub(super) fn list_tools(&self, arguments: Option<&[u8]>) -> Result<Step, BadArguments> {
        let request = ListRequest::tools(arguments)?;
        let view = self.clone();
        Ok(later("list_tools", async move {
            if request.is_of_another_kind() {
                return Ok(written(&full_surface::found(&SearchResponse::default())));
            }
            let request = DiscoverRequest {
                operation: Operation::List,
                server: request.namespace,
                limit: request.limit,
                cursor: request.cursor,
                ..DiscoverRequest::default()
            };
            view.search(request, |_, _, results| page(results)).await
        }))
    }

    pub(super) fn list_namespaces(&self, arguments: Option<&[u8]>) -> Result<Step, BadArguments> {
        let request = ListRequest::namespaces(arguments)?;
        let servers = self.servers();
        let names: Vec<&str> = servers
            .iter()
            .filter(|entry| entry.config.is_enabled())
            .map(|entry| &*entry.name)
            .collect();
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        let (stamp, binding) = (hasher.finish(), format!("{} namespaces", self.binding()));
        let offset = match &request.cursor {
            None => 0,
            Some(cursor) => match self.surface.cursor_key().decode(cursor, stamp, &binding) {
                Ok(offset) => offset as usize,
                Err(error) => {
                    let message = format!("the cursor cannot be used: {error}");
                    return Ok(Step::Now(Finished::invalid(message)));
                }
            },
        };
        let page: Vec<&str> = names.iter().skip(offset).take(request.limit).copied().collect();
        let next = offset + page.len();
        let cursor = (next < names.len()).then(|| {
            self.surface.cursor_key().encode(
                stamp,
                u32::try_from(next).unwrap_or(u32::MAX),
                &binding,
            )
        });
        let answer = full_surface::namespaces(&page, cursor.as_deref()).to_string();
        Ok(Step::Now(Finished::Result(full_surface::answer(answer.as_bytes(), None, &[]))))
    }

    pub(super) fn describe_tool(&self, arguments: Option<&[u8]>) -> Result<Step, BadArguments> {
        let request = DescribeRequest::decode(arguments)?;
        let view = self.clone();
        Ok(later("describe_tool", async move {
            let id = request.tool_id.clone();
            view.documented(&id, move |tool| {
                full_surface::describe(tool, request.level, request.examples)
            })
            .await
        }))
    }

    pub(super) fn list_tool_examples(
        &self,
        arguments: Option<&[u8]>,
    ) -> Result<Step, BadArguments> {
        let request = ExamplesRequest::decode(arguments)?;
        let view = self.clone();
        Ok(later("list_tool_examples", async move {
            let render =
                move |tool: &Documented<'_>| full_surface::list_examples(tool, request.max);
            view.documented(&request.tool_id, render).await
        }))
    }

    /// Finds a tool and describes it; waits for its server, as a call does.
    async fn documented(
        &self,
        id: &str,
        render: impl Fn(&Documented<'_>) -> Value + Send + 'static,
    ) -> Result<Vec<u8>, Finished> {
        let (entry, hit) = self.resolve_id(id).await?;
        let used = self.surface.shapes.uses_of(self.principal, &entry.name, &hit.tool().name);
        let rendering = compute::run(move || {
            written(&render(&Documented {
                hit: &hit,
                tags: &entry.config.tags,
                about: entry.config.description.as_deref(),
                configured: entry.config.examples_of(&hit.tool().name),
                used: used.as_ref(),
            }))
        });
        rendering.await.map_err(|failed| {
            Finished::error(&ErrorObject::new(Code::Internal, failed.to_string()))
        })
    }

    async fn resolve_id(&self, id: &str) -> Result<(Entry, Hit), Finished> {
        self.surface.catalog.loaded().await;
        let (entry, mut tool) = self.tool_named(None, id).map_err(Finished::Refused)?;
        usable(&entry).map_err(Finished::Refused)?;
        let find = |tool: &str| {
            let snapshot = self.snapshot();
            let known = snapshot.known(entry.definition)?;
            Hit::named(Arc::clone(&entry.name), Arc::clone(&known.tools), tool)
        };
        let is_live = || {
            let snapshot = self.snapshot();
            snapshot.known(entry.definition).is_some_and(|known| known.listed_at.is_some())
        };
        if let Some(hit) = find(&tool) {
            return Ok((entry.clone(), hit));
        }
        if !is_live() {
            let listed = self.listed(&entry).await;
            listed.map_err(|refused| Finished::Refused(Box::new(refused)))?;
            // The list may say what the name means.
            tool = self.tool_within(&entry, &tool).map_err(Finished::Refused)?;
        }
        match find(&tool) {
            Some(hit) => Ok((entry.clone(), hit)),
            None => Err(self.tool_missing(&tool, std::slice::from_ref(&entry), &self.snapshot())),
        }
    }
}

fn page(results: &SearchResults) -> Vec<u8> {
    let tags = |hit: &Hit| -> &[String] {
        let entry = results.searched.iter().find(|entry| entry.name == hit.server);
        entry.map_or(&[], |entry| &entry.config.tags)
    };
    written(&full_surface::found(&SearchResponse {
        tools: results.hits.iter().map(|hit| full_surface::summary(hit, tags(hit))).collect(),
        next_cursor: results.next_cursor.as_deref(),
        pending: &results.pending,
        failed: &results.failed,
        note: results.note.as_deref(),
    }))
}
