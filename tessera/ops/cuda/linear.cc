#include "tessera/ops/cuda/linear.h"

#include <algorithm>

#include "tessera/ops/cuda/arrays.h"

namespace tessera::cuda {
namespace {

// Computes `product`, and then calls finish(raw, begin, end). `raw` holds the rows [begin, end) of the product. Usually
// `finish` is called once, for all rows, and `raw` is product.result. The exception: `residual` is the same view as
// product.result. The product must then not overwrite this view, because `finish` still reads the residual. Therefore
// the product is computed in pieces of several rows in context.scratch, and `finish` is called after each piece.
template <typename Finish>
void product_then(const Context& context, Products& products, Product product, View residual, const Finish& finish) {
  const View result = product.result;
  const int64_t num_rows = result.shape[0];
  if (residual.data != result.data) {
    products.run(product);
    finish(result, 0, num_rows);
    return;
  }
  const int64_t row_bytes = result.shape[1] * static_cast<int64_t>(size_of(result.dtype));
  const int64_t piece = kScratchBytes / row_bytes;
  TESSERA_ASSERT(piece > 0);
  const View left = product.left;
  for (int64_t begin = 0; begin < num_rows; begin += piece) {
    const int64_t end = std::min(num_rows, begin + piece);
    product.left = left.rows(begin, end);
    product.result = {context.scratch, result.dtype, {end - begin, result.shape[1]}};
    products.run(product);
    finish(product.result, begin, end);
  }
}

View rows_or_empty(View view, int64_t begin, int64_t end) {
  return view ? view.rows(begin, end) : View{};
}

LinearEpilogue rows_of(const LinearEpilogue& epilogue, int64_t begin, int64_t end) {
  LinearEpilogue part = epilogue;
  part.residual = rows_or_empty(epilogue.residual, begin, end);
  part.dropout.row_ids = rows_or_empty(epilogue.dropout.row_ids, begin, end);
  return part;
}

// Adds the bias and the epilogue to `product`, so one kernel computes all of them. Returns false if they need their own
// kernel. In this case, `product` may have changed and must not be run. If the function returns true, the caller must
// still check products.can(product).
bool fuse_forward(Product& product, View bias, const LinearEpilogue& epilogue, View preactivation) {
  if (epilogue.dropout.rate > 0 || epilogue.activation == Activation::relu) return false;
  product.bias = bias;
  if (epilogue.activation == Activation::none) {
    if (preactivation) return false;
    product.fused = bias ? Fused::bias : Fused::nothing;
    product.added = epilogue.residual;
    return true;
  }
  // Fused::gelu needs a bias. A residual is not fused, because cuBLASLt would add it before GELU. In f64, GELU is not
  // fused: cuBLASLt and Tessera round √(2/π) differently, and f64 results show the difference.
  if (epilogue.residual || !bias || product.left.dtype == DType::f64) return false;
  product.fused = preactivation ? Fused::gelu_keep : Fused::gelu;
  product.aux = preactivation;
  return true;
}

}  // namespace

void linear_forward(const Context& context, Products& products, View x, View weight, View bias,
                    const LinearEpilogue& epilogue, View preactivation, View y) {
  TESSERA_ASSERT(weight.shape == (Shape{y.shape[1], x.shape[1]}) && y.shape[0] == x.shape[0]);
  TESSERA_ASSERT(!bias || bias.num_elems() == y.shape[1]);
  if (x.shape[0] == 0) return;
  Product product{ProductKind::forward, x, weight, y, {}, Fused::nothing, {}, {}};
  if (fuse_forward(product, bias, epilogue, preactivation) && products.can(product)) return products.run(product);
  product = {ProductKind::forward, x, weight, preactivation ? preactivation : y, {}, Fused::bias, bias, {}};
  const bool adds_bias = bias && products.can(product);
  if (!adds_bias) product.fused = Fused::nothing, product.bias = {};
  if (preactivation && !adds_bias) {  // `preactivation` must include the bias
    products.run(product);
    if (bias) finish_forward(context, preactivation, bias, {}, preactivation);
    return finish_forward(context, preactivation, {}, epilogue, y);
  }
  product_then(context, products, product, epilogue.residual, [&](View raw, int64_t begin, int64_t end) {
    finish_forward(context, raw, adds_bias ? View{} : bias, rows_of(epilogue, begin, end), y.rows(begin, end));
  });
}

void linear_backward_input(const Context& context, Products& products, View d_y, View weight,
                           const LinearEpilogue& epilogue, View preactivation, View d_x, View x) {
  TESSERA_ASSERT(weight.shape == (Shape{d_y.shape[1], d_x.shape[1]}) && d_x.shape[0] == d_y.shape[0]);
  TESSERA_ASSERT(epilogue.activation == Activation::none || preactivation);
  if (d_y.shape[0] == 0) return;
  Product product{ProductKind::backward_input, d_y, weight, d_x, {}, Fused::nothing, {}, {}};
  if (!(epilogue.dropout.rate > 0) && epilogue.activation == Activation::none && !x) {
    product.added = epilogue.residual;
    if (products.can(product)) return products.run(product);
  }
  // A product with cuBLASLt's epilogue for GELU's gradient (DGELU) takes longer than a product and a separate kernel.
  product_then(context, products, {ProductKind::backward_input, d_y, weight, d_x, {}, Fused::nothing, {}, {}},
               epilogue.residual, [&](View raw, int64_t begin, int64_t end) {
                 finish_backward(context, raw, rows_of(epilogue, begin, end), rows_or_empty(preactivation, begin, end),
                                 d_x.rows(begin, end), rows_or_empty(x, begin, end));
               });
}

// linear_backward_bias() computes the gradient of the bias in a separate kernel. cuBLASLt could compute the gradients
// of weight and bias in one kernel (BGRADB), but that takes longer.
void linear_backward_weight(Products& products, View d_y, View x, bool fresh, View d_weight) {
  const int64_t num_rows = d_y.shape[0];
  TESSERA_ASSERT(x.shape[0] == num_rows && d_weight.shape == (Shape{d_y.shape[1], x.shape[1]}));
  TESSERA_ASSERT(num_rows > 0 || !fresh);
  if (num_rows == 0) return;
  products.run({ProductKind::backward_weight, d_y, x, d_weight, fresh ? View{} : d_weight, Fused::nothing, {}, {}});
}

}  // namespace tessera::cuda
