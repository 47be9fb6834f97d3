"""A REST API as people write them. FastAPI makes its description, which nobody here wrote; uvicorn serves it on a free port."""

import socket
from enum import Enum
from typing import Annotated

import uvicorn
from fastapi import Cookie, Depends, FastAPI, File, Form, Header, HTTPException, Query, Request, Response, UploadFile
from fastapi.security import APIKeyHeader, HTTPBasic, HTTPBasicCredentials
from pydantic import BaseModel, Field

app = FastAPI(title="Shop", version="3.2", description="Sells things.")
key = APIKeyHeader(name="X-Shop-Key")
basic = HTTPBasic()


class Size(str, Enum):
    small = "small"
    large = "large"


class Item(BaseModel):
    name: str = Field(min_length=2, description="What it is called")
    price: float = Field(gt=0)
    size: Size = Size.small
    tags: list[str] = []
    parts: list["Item"] | None = None


ITEMS = [{"id": number, "name": f"item {number}"} for number in range(1, 26)]


@app.get("/items", tags=["items"], operation_id="list_items")
def list_items(
    response: Response,
    request: Request,
    page: Annotated[int, Query(ge=1)] = 1,
    tag: Annotated[list[str] | None, Query()] = None,
):
    """List the items, ten on a page."""
    if page * 10 < len(ITEMS):
        following = request.url.include_query_params(page=page + 1)
        response.headers["Link"] = f'<{following}>; rel="next"'
    return [item | {"tags": tag or []} for item in ITEMS[page * 10 - 10 : page * 10]]


@app.post("/items", tags=["items"], operation_id="create_item", status_code=201)
def create_item(item: Item, shop_key: Annotated[str, Depends(key)]):
    if shop_key != "s3cret-canary":
        raise HTTPException(401, "wrong key")
    return {"id": 99, "item": item}


@app.get("/items/{item_id}", tags=["items"], operation_id="get_item")
def get_item(
    item_id: int,
    x_trace: Annotated[str | None, Header()] = None,
    session: Annotated[str | None, Cookie()] = None,
):
    if item_id > len(ITEMS):
        raise HTTPException(404, f"no item {item_id}")
    return ITEMS[item_id - 1] | {"trace": x_trace, "session": session}


@app.delete("/items/{item_id}", tags=["items"], operation_id="delete_item", status_code=204)
def delete_item(item_id: int) -> None:
    return None


@app.post("/login", operation_id="log_in")
def log_in(user: Annotated[str, Form()], password: Annotated[str, Form()]):
    return {"user": user, "length": len(password)}


@app.post("/files", operation_id="upload")
async def upload(note: Annotated[str, Form()], files: Annotated[list[UploadFile], File()]):
    return {"note": note, "files": [{"name": file.filename, "type": file.content_type, "text": (await file.read()).decode()} for file in files]}


@app.get("/label.png", operation_id="label", responses={200: {"content": {"image/png": {}}}})
def label():
    return Response(b"\x89PNG\r\n", media_type="image/png")


@app.get("/whoami", operation_id="who_am_i")
def who_am_i(who: Annotated[HTTPBasicCredentials, Depends(basic)]):
    return {"user": who.username, "right": who.password == "pa:ss"}


@app.get("/files/{path:path}", operation_id="read_file")
def read_file(path: str):
    return Response(f"the text of {path}", media_type="text/plain")


if __name__ == "__main__":
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
