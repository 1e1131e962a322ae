"""Packs a model directory as other programs do, and writes beside it what the
packed values are, in floats.

    make_foreign.py DIRECTORY KIND PACKED PLAIN

KIND: awq, gptq, gptq-act (rows in another order), int4 or nvfp4
(compressed-tensors).  Groups of 32.
"""

import json
import os
import shutil
import struct
import sys

GROUP = 32
AWQ = (0, 4, 1, 5, 2, 6, 3, 7)
E2M1 = (0, .5, 1, 1.5, 2, 3, 4, 6)


def half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def words(nibbles):
    """Eight to an integer, the first lowest."""
    return b"".join(struct.pack("<I", sum(n << 4 * k for k, n in enumerate(
        nibbles[i:i + 8]))) for i in range(0, len(nibbles), 8))


def shuffled(row):
    out = [0] * len(row)
    for i, value in enumerate(row):
        out[i // 8 * 8 + AWQ[i % 8]] = value
    return out


def quantize(w, symmetric):
    """codes[row][col], scales[row][group], zeros[row][group], values."""
    codes, scales, zeros, values = [], [], [], []
    for row in w:
        c, s, z, v = [], [], [], []
        for g in range(0, len(row), GROUP):
            part = row[g:g + GROUP]
            if symmetric:
                scale, zero = half(max(map(abs, part)) / 7 or 1), 8
            else:
                low, high = min(min(part), 0), max(max(part), 0)
                scale = half((high - low) / 15 or 1)
                zero = max(1, min(15, round(-low / scale)))
            code = [max(0, min(15, round(x / scale) + zero)) for x in part]
            c += code
            s.append(scale)
            z.append(zero)
            v += [(q - zero) * scale for q in code]
        codes.append(c)
        scales.append(s)
        zeros.append(z)
        values.append(v)
    return codes, scales, zeros, values


def turned(m):
    return [list(column) for column in zip(*m)]


def flat(m):
    return [x for row in m for x in row]


def halves(m):
    return struct.pack(f"<{len(flat(m))}e", *flat(m))


def nvfp4(name, w):
    whole, packed, scales, values = 3.0, [], [], []
    for row in w:
        out = []
        for g in range(0, len(row), 16):
            part = row[g:g + 16]
            most = max(map(abs, part)) or 1
            code = min(range(1, 0x7f), key=lambda c: abs(e4m3(c) / whole -
                                                         most / 6))
            scale = e4m3(code) / whole
            scales.append(code)
            for x in part:
                c = min(range(8), key=lambda k: abs(E2M1[k] * scale - abs(x)))
                packed.append(c | (8 if x < 0 else 0))
                out.append(E2M1[c] * scale * (-1 if x < 0 else 1))
        values.append(out)
    rows, cols = len(w), len(w[0])
    data = bytes(packed[i] | packed[i + 1] << 4
                 for i in range(0, len(packed), 2))
    return {name + ".weight_packed": ("U8", [rows, cols // 2], data),
            name + ".weight_scale": ("F8_E4M3", [rows, cols // 16],
                                     bytes(scales)),
            name + ".weight_global_scale": ("F32", [1],
                                            struct.pack("<f", whole))}, values


def e4m3(code):
    e, f = code >> 3 & 15, code & 7
    return (8 + f) * 2.0 ** (e - 10) if e else f * 2.0 ** -9


def pack(kind, name, w):
    rows, cols = len(w), len(w[0])
    if kind == "nvfp4":
        return nvfp4(name, w)
    codes, scales, zeros, values = quantize(w, kind == "int4")
    groups = cols // GROUP
    if kind == "int4":
        return {name + ".weight_packed": ("I32", [rows, cols // 8],
                                          words(flat(codes))),
                name + ".weight_scale": ("F16", [rows, groups],
                                         halves(scales)),
                name + ".weight_shape": ("I64", [2],
                                         struct.pack("<qq", rows, cols))}, values
    if kind == "awq":
        parts = {".qweight": ("I32", [cols, rows // 8], b"".join(
                     words(shuffled(r)) for r in turned(codes))),
                 ".qzeros": ("I32", [groups, rows // 8], b"".join(
                     words(shuffled(r)) for r in turned(zeros)))}
    else:
        columns = turned(codes)  # [cols][rows]
        lines = b"".join(struct.pack("<I", sum(
            columns[i + k][r] << 4 * k for k in range(8)))
            for i in range(0, cols, 8) for r in range(rows))
        order = [i // GROUP for i in range(cols)]
        if kind == "gptq-act":
            order.reverse()
        parts = {".qweight": ("I32", [cols // 8, rows], lines),
                 ".qzeros": ("I32", [groups, rows // 8], b"".join(
                     words([z - 1 for z in r]) for r in turned(zeros))),
                 ".g_idx": ("I32", [cols], struct.pack(f"<{cols}i", *order))}
    parts[".scales"] = ("F16", [groups, rows], halves(turned(scales)))
    return {name + k: v for k, v in parts.items()}, values


def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    source, kind, packed, plain = sys.argv[1:]
    with open(os.path.join(source, "model.safetensors"), "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    one, other = {}, {}
    for name, t in header.items():
        raw = data[slice(*t["data_offsets"])]
        one[name] = other[name] = (t["dtype"], t["shape"], raw)
        if not name.endswith("_proj.weight"):
            continue
        rows, cols = t["shape"]
        values = struct.unpack(f"<{rows * cols}f", raw)
        del one[name]
        parts, real = pack(kind, name[:-len(".weight")],
                           [values[i * cols:(i + 1) * cols]
                            for i in range(rows)])
        one.update(parts)
        other[name] = ("F32", t["shape"],
                       struct.pack(f"<{rows * cols}f", *flat(real)))
    with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    weights = {"num_bits": 4, "type": "int", "group_size": GROUP,
               "strategy": "group", "symmetric": True}
    settings = {"quant_method": kind[:4], "bits": 4, "group_size": GROUP}
    if kind in ("int4", "nvfp4"):
        settings = {"quant_method": "compressed-tensors",
                    "format": "pack-quantized" if kind == "int4"
                    else "nvfp4-pack-quantized",
                    "config_groups": {"group_0": {"weights": weights}}}
    elif kind == "awq":
        settings["quant_method"] = "awq"
    for folder, tensors, more in ((packed, one, settings), (plain, other, None)):
        os.makedirs(folder)
        for file in os.listdir(source):
            if not file.endswith(".safetensors"):
                shutil.copyfile(os.path.join(source, file),
                                os.path.join(folder, file))
        if more:
            config["quantization_config"] = more
            with open(os.path.join(folder, "config.json"), "w",
                      encoding="utf-8") as file:
                json.dump(config, file)
        write(os.path.join(folder, "model.safetensors"), tensors)


main()
