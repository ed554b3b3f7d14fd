module {
  tt.func public @flash(%arg0: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %arg1: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %arg2: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %arg3: !tt.ptr<f32> {tt.divisibility = 16 : i32}) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1024 : i32
    %c2 = arith.constant 16 : i32
    %c3 = arith.constant dense<16> : tensor<16x1xi32>
    %c5 = arith.constant dense<-1.00000001504746622e+30> : tensor<16xf32>
    %c7 = arith.constant dense<0.000000e+00> : tensor<16xf32>
    %c8 = arith.constant dense<0.000000e+00> : tensor<16x16xf32>
    %c9 = arith.constant 1 : i32
    %c10 = arith.constant -1 : i32
    %c11 = arith.constant dense<-1.00000001504746622e+30> : tensor<16x16xf32>
    %1 = tt.get_program_id x : i32
    %2 = tt.get_program_id y : i32
    %3 = arith.muli %2, %c1 : i32
    %4 = arith.muli %1, %c2 : i32
    %5 = arith.muli %4, %c2 : i32
    %6 = arith.addi %3, %5 : i32
    %7 = tt.addptr %arg0, %6 : !tt.ptr<f32>, i32
    %8 = arith.muli %2, %c1 : i32
    %9 = tt.addptr %arg1, %8 : !tt.ptr<f32>, i32
    %10 = arith.muli %2, %c1 : i32
    %11 = tt.addptr %arg2, %10 : !tt.ptr<f32>, i32
    %12 = arith.muli %2, %c1 : i32
    %13 = arith.muli %1, %c2 : i32
    %14 = arith.muli %13, %c2 : i32
    %15 = arith.addi %12, %14 : i32
    %16 = tt.addptr %arg3, %15 : !tt.ptr<f32>, i32
    %17 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %18 = tt.expand_dims %17 {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %19 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %20 = tt.expand_dims %19 {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
    %21 = arith.muli %18, %c3 : tensor<16x1xi32>
    %22 = tt.broadcast %21 : tensor<16x1xi32> -> tensor<16x16xi32>
    %23 = tt.broadcast %20 : tensor<1x16xi32> -> tensor<16x16xi32>
    %24 = arith.addi %22, %23 : tensor<16x16xi32>
    %25 = tt.splat %7 : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>>
    %26 = tt.addptr %25, %24 : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
    %27 = tt.load %26 : tensor<16x16x!tt.ptr<f32>>
    %28 = arith.muli %1, %c2 : i32
    %29 = arith.addi %28, %c2 : i32
    %30 = arith.addi %29, %c2 : i32
    %31 = arith.subi %30, %c9 : i32
    %32 = arith.remsi %31, %c2 : i32
    %33 = arith.cmpi eq, %32, %c0 : i32
    %34 = arith.cmpi slt, %31, %c0 : i32
    %35 = arith.select %34, %c10, %31 : i32
    %36 = arith.cmpi sgt, %31, %c0 : i32
    %37 = arith.select %36, %c9, %35 : i32
    %38 = arith.cmpi slt, %c2, %c0 : i32
    %39 = arith.select %38, %c10, %c2 : i32
    %40 = arith.cmpi sgt, %c2, %c0 : i32
    %41 = arith.select %40, %c9, %39 : i32
    %42 = arith.cmpi eq, %37, %41 : i32
    %43 = arith.divsi %31, %c2 : i32
    %44 = arith.ori %33, %42 : i1
    %45 = arith.subi %43, %c9 : i32
    %46 = arith.select %44, %43, %45 : i32
    %118:3 = scf.for %48 = %c0 to %46 step %c9 iter_args(%49 = %c5, %50 = %c7, %51 = %c8) -> (tensor<16xf32>, tensor<16xf32>, tensor<16x16xf32>) : i32 {
      %52 = arith.muli %48, %c2 : i32
      %53 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
      %54 = tt.expand_dims %53 {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
      %55 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
      %56 = tt.expand_dims %55 {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
      %57 = arith.muli %52, %c2 : i32
      %58 = arith.muli %54, %c3 : tensor<16x1xi32>
      %59 = tt.broadcast %58 : tensor<16x1xi32> -> tensor<16x16xi32>
      %60 = tt.broadcast %56 : tensor<1x16xi32> -> tensor<16x16xi32>
      %61 = arith.addi %59, %60 : tensor<16x16xi32>
      %62 = tt.addptr %9, %57 : !tt.ptr<f32>, i32
      %63 = tt.splat %62 : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>>
      %64 = tt.addptr %63, %61 : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
      %65 = tt.load %64 : tensor<16x16x!tt.ptr<f32>>
      %66 = tt.trans %65 {order = array<i32: 1, 0>} : tensor<16x16xf32> -> tensor<16x16xf32>
      %67 = tt.dot %27, %66, %c8, inputPrecision = tf32 : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
      %68 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
      %69 = tt.expand_dims %68 {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
      %70 = tt.broadcast %69 : tensor<16x1xi32> -> tensor<16x16xi32>
      %71 = tt.splat %28 : i32 -> tensor<16x16xi32>
      %72 = arith.addi %71, %70 : tensor<16x16xi32>
      %73 = arith.muli %48, %c2 : i32
      %74 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
      %75 = tt.expand_dims %74 {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
      %76 = tt.broadcast %75 : tensor<1x16xi32> -> tensor<16x16xi32>
      %77 = tt.splat %73 : i32 -> tensor<16x16xi32>
      %78 = arith.addi %77, %76 : tensor<16x16xi32>
      %79 = arith.cmpi sge, %72, %78 : tensor<16x16xi32>
      %80 = arith.select %79, %67, %c11 : tensor<16x16xi1>, tensor<16x16xf32>
      %84 = "tt.reduce"(%80) <{axis = 1 : i32}> ({
        ^bb0(%81: f32, %82: f32):
        %83 = arith.maximumf %81, %82 : f32
        tt.reduce.return %83 : f32
      }) : (tensor<16x16xf32>) -> (tensor<16xf32>)
      %85 = arith.maximumf %49, %84 : tensor<16xf32>
      %86 = tt.expand_dims %85 {axis = 1 : i32} : tensor<16xf32> -> tensor<16x1xf32>
      %87 = tt.broadcast %86 : tensor<16x1xf32> -> tensor<16x16xf32>
      %88 = arith.subf %80, %87 : tensor<16x16xf32>
      %89 = math.exp %88 : tensor<16x16xf32>
      %90 = arith.subf %49, %85 : tensor<16xf32>
      %91 = math.exp %90 : tensor<16xf32>
      %92 = tt.expand_dims %91 {axis = 1 : i32} : tensor<16xf32> -> tensor<16x1xf32>
      %93 = tt.broadcast %92 : tensor<16x1xf32> -> tensor<16x16xf32>
      %94 = arith.mulf %51, %93 : tensor<16x16xf32>
      %95 = arith.muli %48, %c2 : i32
      %96 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
      %97 = tt.expand_dims %96 {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
      %98 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
      %99 = tt.expand_dims %98 {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
      %100 = arith.muli %95, %c2 : i32
      %101 = arith.muli %97, %c3 : tensor<16x1xi32>
      %102 = tt.broadcast %101 : tensor<16x1xi32> -> tensor<16x16xi32>
      %103 = tt.broadcast %99 : tensor<1x16xi32> -> tensor<16x16xi32>
      %104 = arith.addi %102, %103 : tensor<16x16xi32>
      %105 = tt.addptr %11, %100 : !tt.ptr<f32>, i32
      %106 = tt.splat %105 : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>>
      %107 = tt.addptr %106, %104 : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
      %108 = tt.load %107 : tensor<16x16x!tt.ptr<f32>>
      %109 = tt.dot %89, %108, %c8, inputPrecision = tf32 : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
      %110 = arith.addf %94, %109 : tensor<16x16xf32>
      %111 = arith.mulf %50, %91 : tensor<16xf32>
      %115 = "tt.reduce"(%89) <{axis = 1 : i32}> ({
        ^bb0(%112: f32, %113: f32):
        %114 = arith.addf %112, %113 : f32
        tt.reduce.return %114 : f32
      }) : (tensor<16x16xf32>) -> (tensor<16xf32>)
      %116 = arith.addf %111, %115 : tensor<16xf32>
      scf.yield %85, %116, %110 : tensor<16xf32>, tensor<16xf32>, tensor<16x16xf32>
    }
    %119 = tt.expand_dims %118#1 {axis = 1 : i32} : tensor<16xf32> -> tensor<16x1xf32>
    %120 = tt.broadcast %119 : tensor<16x1xf32> -> tensor<16x16xf32>
    %121 = arith.divf %118#2, %120 : tensor<16x16xf32>
    %122 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %123 = tt.expand_dims %122 {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %124 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %125 = tt.expand_dims %124 {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
    %126 = arith.muli %123, %c3 : tensor<16x1xi32>
    %127 = tt.broadcast %126 : tensor<16x1xi32> -> tensor<16x16xi32>
    %128 = tt.broadcast %125 : tensor<1x16xi32> -> tensor<16x16xi32>
    %129 = arith.addi %127, %128 : tensor<16x16xi32>
    %130 = tt.splat %16 : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>>
    %131 = tt.addptr %130, %129 : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
    tt.store %131, %121 : tensor<16x16x!tt.ptr<f32>>
    tt.return
  }
}
